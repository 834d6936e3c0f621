"""Mistakes that mypy and pyright must find. test_types.py checks this file and demands the errors that the comments
name, and no others. Nothing runs it."""

from typing import Any

import moecomm


def plant(comm: moecomm.Communicator, rows: Any) -> None:
    handle = comm.handle(8, 2)
    comm.handle(8, 2, layout="expert_major")  # mypy: arg-type, pyright: reportArgumentType
    handle.dispatch(rows, rows, cast=moecomm.Cast("fp8-e4m3"))  # mypy: arg-type, pyright: reportArgumentType
    handle.dispatch(rows, rows, cast="fp8")  # mypy: arg-type, pyright: reportArgumentType
    handle.dispatch(rows, rows, describe=moecomm.Describe(out_topk_id=rows))  # mypy: call-arg, pyright: reportCallIssue
    handle.dispatch(rows, rows, pad_row=True)  # mypy: call-arg, pyright: reportCallIssue
    comm.handle(8, 2, tokens_max="128")  # mypy: arg-type, pyright: reportArgumentType
    handle.combine(rows, rows, wire="bf16")  # mypy: arg-type, pyright: reportArgumentType
    handle.combine(rows, rows, weights="applied-here")  # mypy: arg-type, pyright: reportArgumentType
    handle.combine(rows)  # mypy: call-arg, pyright: reportCallIssue
    moecomm.Communicator.from_env(modes="low-latency")  # mypy: arg-type, pyright: reportArgumentType
    handle.status().with_traceback(None)  # mypy: union-attr, pyright: reportOptionalMemberAccess
    plan = handle.plan(8, dispatch={"rows": rows, "out_rows": rows, "pad_rows": True}, combine={"rows": rows, "out": rows})
    plan.route_dispatch(rows, None, rows, rows, describe=moecomm.Describe(rows))
    plan.combine(rows, rows, bias0=rows, stream=8)
    plan.combine(rows, rows, wire="row")  # mypy: call-arg, pyright: reportCallIssue
    plan.dispatch(rows)  # mypy: call-arg, pyright: reportCallIssue
    handle.plan(8, combine={"rows": rows})  # mypy: arg-type, pyright: reportArgumentType
    handle.plan(8, combine={"rows": rows, "out": rows, "wire": "x"})  # mypy: arg-type, pyright: reportArgumentType
