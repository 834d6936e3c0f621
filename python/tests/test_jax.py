"""moecomm.jax: sums and gradients against a dense reference under jit, on 2 and 4 processes and on devices of one
process. Needs jax."""

import unittest

from support_jax import GPUS, PLACE, TIMEOUT_MS, JaxTest, jax

import moecomm

if jax is not None:
    import jax.numpy as jnp
    import numpy
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import moecomm.jax

HIDDEN, EXPERTS, TOPK, TOKENS = 32, 8, 3, 6
LAYOUTS = ("flat", "rank-major", "expert-major", "expert-major-padded")
SETTINGS = dict(tokens_max=16, ll_tokens_max=16, row_bytes_max=512, timeout_ms=TIMEOUT_MS)


def inputs(rank, tokens=TOKENS, dtype="float32"):
    """Rows, weights and ids with some -1. Integers, so that every order of sums has the same bits."""
    random = numpy.random.default_rng(100 + rank)
    rows = random.integers(-4, 5, (tokens, HIDDEN)).astype(numpy.float32)
    weights = random.integers(-4, 5, (tokens, TOPK)).astype(numpy.float32)
    ids = random.permuted(numpy.tile(numpy.arange(EXPERTS), (tokens, 1)), axis=1)[:, :TOPK]
    ids[random.random((tokens, TOPK)) < 0.2] = -1
    up = random.integers(-2, 3, (tokens, HIDDEN)).astype(numpy.float32)
    return jnp.asarray(rows, dtype), jnp.asarray(weights), jnp.asarray(ids, jnp.int32), jnp.asarray(up, dtype)


def scales(first, count):
    """The factors by which experts multiply their rows."""
    return jnp.arange(first + 1.0, first + count + 1.0)


def factors(ids, of_experts):
    return jnp.where(ids >= 0, of_experts[jnp.clip(ids, 0)], 0.0)


def layer(moe, rows, weights, ids, own_scales):
    """Dispatch, experts, combine on one rank."""
    got = moe.dispatch(rows, ids, weights)
    made = factors(got.topk_idx, own_scales)
    if moe.by_expert:
        return moe.combine(got.rows * made[:, None].astype(got.rows.dtype), got, weights="apply")
    made = (made * got.topk_weights).sum(axis=1)
    return moe.combine(got.rows * made[:, None].astype(got.rows.dtype), got)


def dense(rows, weights, ids, all_scales):
    return rows * (factors(ids, all_scales) * weights).sum(axis=1)[:, None].astype(rows.dtype)


def graded(function, up):
    """Sums and the gradients of rows and weights, jitted."""

    def loss(rows, weights, ids, of_experts):
        sums = function(rows, weights, ids, of_experts)
        return (sums * up).sum().astype(jnp.float32), sums

    return jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))


def join(rank, processes, identity=None):
    if identity is None:
        return moecomm.jax.communicators(**SETTINGS)
    return moecomm.Communicator(processes, rank, identity, **PLACE, **SETTINGS)


def compare(rank, processes, moe, dtype="float32", tokens=TOKENS):
    rows, weights, ids, up = inputs(rank, tokens, dtype)
    local = EXPERTS // processes
    here = graded(lambda *given: layer(moe, *given), up)(rows, weights, ids, scales(rank * local, local))
    due = graded(dense, up)(rows, weights, ids, scales(0, EXPERTS))
    (row_grads, weight_grads), sums = here
    (due_row_grads, due_weight_grads), due_sums = due
    label = (moe.layout, moe.mode, dtype, tokens)
    assert sums.dtype == due_sums.dtype, label
    for name, one, other in (
        ("sums", sums, due_sums),
        ("rows", row_grads, due_row_grads),
        ("weights", weight_grads, jnp.where(ids >= 0, due_weight_grads, 0)),
    ):
        assert numpy.array_equal(one, other), (name, label, one, other)


def gradients(rank, processes, identity):
    """Every layout and mode, with another number of tokens on each rank."""
    with join(rank, processes, identity) as comm:
        for layout in LAYOUTS:
            for mode in ("ht", "ll"):
                moe = moecomm.jax.Dispatcher(comm, EXPERTS, TOPK, layout=layout, mode=mode)
                compare(rank, processes, moe, tokens=1 + 2 * rank)
                moe.destroy()


def dtypes(rank, processes, identity):
    with join(rank, processes, identity) as comm:
        moe = moecomm.jax.Dispatcher(comm, EXPERTS, TOPK, layout="expert-major", out_rows_max=200)
        assert moe.capacity == 200
        rows, weights, ids, _ = inputs(rank)
        for dtype in ("bfloat16", "float16"):
            sums = jax.jit(lambda *given: layer(moe, *given))(
                *(rows.astype(dtype), jnp.ones_like(weights), ids, jnp.ones(EXPERTS // processes))
            )
            wanted = rows * (ids >= 0).sum(axis=1)[:, None]  # small integers, exact in both types
            assert sums.dtype == dtype and numpy.array_equal(sums.astype(jnp.float32), wanted)
        moe.destroy()


def arrivals(rank, processes, identity):
    """Checks the results of a dispatch, outside of jit too, and that Dispatched may leave a program."""
    with join(rank, processes, identity) as comm:
        moe = moecomm.jax.Dispatcher(comm, EXPERTS, TOPK, layout="expert-major-padded")
        rows, _, ids, _ = inputs(rank)
        local = EXPERTS // processes
        for got in (moe.dispatch(rows, ids), jax.jit(moe.dispatch)(rows, ids)):
            groups = numpy.asarray(got.rows).reshape(local, -1, HIDDEN)
            for expert in range(local):
                sources = [inputs(source) for source in range(processes)]
                due = [one[0][(one[2] == rank * local + expert).any(axis=1)] for one in sources]
                due = numpy.concatenate(due)
                count = int(got.rows_per_expert[expert])
                assert numpy.array_equal(groups[expert, :count], due), expert
                assert not groups[expert, count:].any()
            assert numpy.array_equal(got.topk_weights, got.topk_idx >= 0)
            sums = jax.jit(moe.combine)(got.rows, got)
            assert numpy.array_equal(sums, rows * (ids >= 0).sum(axis=1)[:, None])
        moe.check()
        moe.destroy()


def raises(expected, text, function, *arguments, **keywords):
    try:
        jax.block_until_ready(function(*arguments, **keywords))
    except expected as error:
        assert text in str(error), (text, str(error))
        return
    raise AssertionError(f"expected {expected}: {text}")


def fails(text, moe, function, *arguments):
    """The program fails; on GPUs check() says so when it has run."""
    if PLACE["backend"] == "host":
        return raises(jax.errors.JaxRuntimeError, text, function, *arguments)
    jax.block_until_ready(function(*arguments))
    raises(moecomm.MoeError, text, moe.check)


def faults(rank, processes, identity):
    """A bad expert id is an error of the program on every rank, and the next program runs."""
    with join(rank, processes, identity) as comm:
        moe = moecomm.jax.Dispatcher(comm, EXPERTS, TOPK, in_flight=1)
        rows, weights, ids, _ = inputs(rank)
        step = jax.jit(lambda *given: layer(moe, *given, scales(0, EXPERTS // processes)))
        wrong = ids.at[0, 0].set(EXPERTS) if rank == 1 else ids
        fails(f"of rank 1 is {EXPERTS}, not -1..7", moe, step, rows, weights, wrong)
        compare(rank, processes, moe)
        earlier = jax.jit(moe.dispatch)(rows, ids)
        jax.block_until_ready(jax.jit(moe.dispatch)(rows, ids))
        raises(jax.errors.JaxRuntimeError, "in_flight is 1", jax.jit(moe.combine), earlier.rows, earlier)
        moe.destroy()


def refusals(rank, processes, identity):
    """Arguments that are refused when a program is traced. Nothing travels."""
    with join(rank, processes, identity) as comm:
        moe = moecomm.jax.Dispatcher(comm, EXPERTS, TOPK)
        rows, weights, ids, _ = inputs(rank)
        step = jax.jit(moe.dispatch)
        raises(TypeError, "rows holds int32", step, rows.astype(jnp.int32), ids)
        raises(ValueError, "multiple of 16 bytes", step, rows[:, :3], ids)
        raises(ValueError, "topk_idx has shape", step, rows, ids[:, :2])
        raises(ValueError, "topk_weights is float16", step, rows, ids, weights.astype(jnp.float16))
        raises(ValueError, "at most tokens_max, 16", step, jnp.ones((17, HIDDEN)), jnp.zeros((17, TOPK), jnp.int32))
        raises(ValueError, "rows has no tokens", step, rows[:0], ids[:0])
        raises(TypeError, "rows is a list", moe.dispatch, [1], ids)
        raises(ValueError, "experts is 7", moecomm.jax.Dispatcher, comm, 7, TOPK)
        raises(ValueError, "fixed rows", moecomm.jax.Dispatcher, comm, EXPERTS, TOPK, layout="rank-major", out_rows_max=9)
        raises(TypeError, "expected a Communicator", moecomm.jax.Dispatcher, None, EXPERTS, TOPK)
        got = step(rows, ids)
        raises(ValueError, "out rows", moe.combine, got.rows[1:], got)
        raises(NotImplementedError, "flat", moe.combine, got.rows, got, weights="apply")
        raises(NotImplementedError, "vmap", jax.vmap(moe.dispatch), rows[None], ids[None])
        moe.destroy()


class Model:
    """Layers in a scan, over a mesh, beside a dense model. losses(moe, remat) compares them."""

    layers = 4

    def __init__(self, mesh):
        self.mesh, self.over = mesh, PartitionSpec(mesh.axis_names[0])
        self.specs = (self.over, PartitionSpec(), PartitionSpec(None, mesh.axis_names[0]))
        random = numpy.random.default_rng(7)
        shapes = (mesh.size * TOKENS, HIDDEN), (self.layers, HIDDEN, EXPERTS), (self.layers, EXPERTS)
        whole = [random.normal(size=shape).astype(numpy.float32) * 0.3 for shape in shapes]
        self.given = [
            jax.make_array_from_callback(one.shape, NamedSharding(mesh, spec), lambda where, one=one: one[where])
            for one, spec in zip(whole, self.specs)
        ]
        self.due = self.graded(self.loss(dense, False))(*whole)

    def loss(self, mixed, remat):
        def block(rows, parameters):
            router, own_scales = parameters
            weights, ids = jax.lax.top_k(jax.nn.softmax(rows @ router), TOPK)
            return rows + mixed(jnp.tanh(rows), weights, ids, own_scales), None

        used = jax.checkpoint(block) if remat else block
        return lambda rows, *parameters: (jax.lax.scan(used, rows, parameters)[0] ** 2).sum()[None]

    def graded(self, loss):
        return jax.jit(jax.value_and_grad(lambda *given: loss(*given).sum(), argnums=(0, 1, 2)))

    def compare(self, moe, remat):
        own = self.loss(lambda *given: layer(moe, *given), remat)
        step = self.graded(jax.shard_map(own, mesh=self.mesh, in_specs=self.specs, out_specs=self.over))
        for _ in range(3):
            loss, grads = step(*self.given)
            numpy.testing.assert_allclose(loss, self.due[0], rtol=1e-5)
            for one, other in zip(grads, self.due[1]):
                for shard in one.addressable_shards:
                    wanted = numpy.asarray(other)[shard.index]
                    numpy.testing.assert_allclose(shard.data, wanted, rtol=1e-4, atol=1e-4 * abs(wanted).max())


def sharded(rank, processes):
    """shard_map over all devices, in a scan, with and without jax.checkpoint."""
    mesh = Mesh(numpy.array(jax.devices()), ("experts",))
    model = Model(mesh)
    with moecomm.jax.communicators(mesh, **SETTINGS) as comms:
        for remat in (False, True):
            in_flight = 1 if remat else model.layers  # layers whose backward pass has not come
            moe = moecomm.jax.Dispatcher(comms, EXPERTS, TOPK, layout="expert-major", in_flight=in_flight)
            model.compare(moe, remat)
            moe.destroy()


class TwoProcesses(JaxTest):
    """Ranks that meet by an id, without jax.distributed."""

    world = dict(processes=2)

    def test_gradients_are_those_of_a_dense_layer(self):
        self.run_world(gradients, moecomm.unique_id())

    def test_rows_of_two_bytes_are_summed(self):
        self.run_world(dtypes, moecomm.unique_id())

    def test_rows_arrive_in_groups(self):
        self.run_world(arrivals, moecomm.unique_id())

    def test_faults_are_errors_of_the_program(self):
        self.run_world(faults, moecomm.unique_id())

    def test_arguments_are_refused_while_tracing(self):
        self.run_world(refusals, moecomm.unique_id())


class FourProcesses(JaxTest):
    """jax.distributed, with one device in each process. XLA's own collectives refuse processes that share a GPU."""

    world = dict(processes=min(GPUS or 4, 4), distributed=True)

    def test_gradients_are_those_of_a_dense_layer(self):
        self.run_world(gradients, None)

    def test_layers_in_a_scan_train(self):
        self.run_world(sharded)


class OneProcess(JaxTest):
    """Several devices, each of which is a rank: all GPUs, or more devices than some machines have cores."""

    world = dict(processes=1, devices=4)

    def test_layers_in_a_scan_train(self):
        self.run_world(sharded)


if __name__ == "__main__":
    unittest.main()
