"""Settings of moecomm.deep_ep: configure() before the environment before the defaults, alike on all ranks. Needs
torch."""

import contextlib
import os
import unittest
from unittest import mock

from support_ranks import DEVICE, RANKS, SKIP, TIMEOUT_MS, RanksTest, refuses, torch
from test_deep_ep import HIDDEN, inputs, ranks_of, send

if torch is not None:
    import moecomm
    import moecomm.deep_ep as deep_ep
    from moecomm.deep_ep.settings import current_settings, default_tokens_max

NAMES = ("in_flight", "low_latency_in_flight", "sum_weights", "device", "tokens_max", "domain_size")


@contextlib.contextmanager
def settings(configured=(), **environment):
    """Nothing but these is configured or in the environment. Names lack MOECOMM_."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("MOECOMM_DEEP", "MOECOMM_TOKENS"))}
    kept.update({f"MOECOMM_{name}": text for name, text in environment.items()})
    with mock.patch.dict(os.environ, kept, clear=True):
        with mock.patch.dict(deep_ep.settings._settings, dict(configured), clear=True):
            yield


@unittest.skipIf(SKIP, SKIP)
class SettingsTest(unittest.TestCase):
    def found(self):
        found = current_settings()
        return tuple(found.get(name) for name in NAMES)

    def test_configure_goes_before_the_environment_and_that_before_the_defaults(self):
        defaults = (8, 4, True, None, None, None)
        with settings():
            self.assertEqual(self.found(), defaults)
        environment = dict(DEEP_EP_IN_FLIGHT="96", DEEP_EP_LOW_LATENCY_IN_FLIGHT="6", DEEP_EP_SUM_WEIGHTS="off")
        environment.update(DEEP_EP_DEVICE="cpu", TOKENS_MAX="512", DOMAIN_SIZE="2")
        with settings(**environment):
            self.assertEqual(self.found(), (96, 6, False, "cpu", 512, 2))
            deep_ep.configure(in_flight=5, sum_weights=True, device="cuda", tokens_max=64, domain_size=4)
            self.assertEqual(self.found(), (5, 6, True, "cuda", 64, 4))
            unset = dict(in_flight=None, sum_weights=None, device=None, tokens_max=0, domain_size=0)
            deep_ep.configure(**unset)
            self.assertEqual(self.found(), (96, 6, False, "cpu", 512, 2))
        with settings(unset):
            self.assertEqual(self.found()[:4], defaults[:4])
        with settings(**{name: "" for name in environment}):
            self.assertEqual(self.found(), defaults)

    def test_an_engine_s_bound_comes_last(self):
        with settings():
            default_tokens_max(48)
            self.assertEqual(current_settings()["tokens_max"], 48)
        with settings(TOKENS_MAX="24"):
            default_tokens_max(48)
            self.assertEqual(current_settings()["tokens_max"], 24)

    def test_a_text_that_cannot_be_read_is_refused_with_what_is_accepted(self):
        limits = moecomm.limits()
        whole = "a whole number, 1..2147483647"
        cases = [("DEEP_EP_IN_FLIGHT", text, whole) for text in ("0", "-8", "8.0", " 8", "1_6", "all", "99999999999")]
        for text in ("3", "0", "four"):
            cases.append(("DEEP_EP_LOW_LATENCY_IN_FLIGHT", text, "an even number, 2..2147483646"))
        cases += [("DEEP_EP_SUM_WEIGHTS", text, "on or off") for text in ("0", "True", "ON")]
        cases += [("DEEP_EP_DEVICE", text, "cpu or cuda") for text in ("gpu", "cuda:0")]
        cases.append(("TOKENS_MAX", "4k", f"a whole number, 1..{limits.tokens_max}"))
        cases.append(("DOMAIN_SIZE", "two", f"a whole number, 0..{limits.ranks_max}"))
        for name, text, accepted in cases:
            with self.subTest(name=name, text=text), settings(**{name: text}):
                with self.assertRaises(ValueError) as caught:
                    current_settings()
                self.assertEqual(str(caught.exception), f"MOECOMM_{name} is {text!r}, expected {accepted}")


def new_buffer():
    deep_ep.configure(timeout_ms=TIMEOUT_MS)
    return deep_ep.Buffer(torch.distributed.group.WORLD, explicitly_destroy=True)


def many_dispatches(rank):
    """Twelve dispatches before the first backward pass: more than the default allows."""
    kind = torch.device(DEVICE).type
    x, ids, weights = inputs(rank)
    copies = ranks_of(ids).sum(dim=1, keepdim=True)
    for in_flight in ("", "12"):
        with settings(DEEP_EP_IN_FLIGHT=in_flight, DEEP_EP_DEVICE=kind, TOKENS_MAX="64"):
            buffer = new_buffer()
            received = [send(buffer, x, ids, weights) for _ in range(12)]
            recv_x, *_, handle, _ = received[0]
            if in_flight:
                assert torch.equal(buffer.combine(recv_x, handle)[0], (x.float() * copies).to(x.dtype))
            else:
                sentence = "in_flight is 8. Raise in_flight by moecomm.deep_ep.configure(in_flight=...) or "
                sentence += "MOECOMM_DEEP_EP_IN_FLIGHT, alike on all ranks"
                refuses(moecomm.InvalidUsage, sentence, buffer.combine, recv_x, handle)
            ring = received[0][4].route.ring
            assert ring.handles[0].tokens_max == 64  # MOECOMM_TOKENS_MAX counts
            buffer.destroy()


def low_latency_bound(rank):
    kind = torch.device(DEVICE).type
    x, ids, weights = inputs(rank)
    with settings(DEEP_EP_LOW_LATENCY_IN_FLIGHT="2", DEEP_EP_DEVICE=kind):
        buffer = new_buffer()
        got = [buffer.low_latency_dispatch(x, ids, 8, 8, use_fp8=False) for _ in range(3)]
        sentence = "low_latency_in_flight is 2. Raise low_latency_in_flight by moecomm.deep_ep.configure("
        sentence += "low_latency_in_flight=...) or MOECOMM_DEEP_EP_LOW_LATENCY_IN_FLIGHT, alike on all ranks"
        combine = buffer.low_latency_combine
        refuses(moecomm.InvalidUsage, sentence, combine, got[0][0], ids, weights, got[0][2])
        combine(got[1][0], ids, weights, got[1][2])
        buffer.destroy()


def unlike(rank):
    """All ranks raise the error of one rank, and are in step afterwards."""
    kind = torch.device(DEVICE).type
    with settings(DEEP_EP_DEVICE=kind, DEEP_EP_IN_FLIGHT="9" if rank == 3 else ""):
        sentence = "in_flight is 8 on rank 0, but 9 on rank 3. Set it alike on all ranks by moecomm.deep_ep.configure("
        refuses(moecomm.InvalidUsage, sentence, new_buffer)
        refuses(moecomm.InvalidUsage, sentence, deep_ep.ElasticBuffer, torch.distributed.group.WORLD)
    with settings(DEEP_EP_DEVICE=kind, DEEP_EP_SUM_WEIGHTS="maybe" if rank == 2 else "on"):
        refuses(ValueError, "MOECOMM_DEEP_EP_SUM_WEIGHTS is 'maybe', expected on or off", new_buffer)
    assert RANKS > 3


class DeepEpSettingsTest(RanksTest):
    def test_the_environment_allows_more_dispatches_in_flight(self):
        self.run_ranks(many_dispatches)

    def test_a_low_latency_handle_that_is_gone_names_its_own_bound(self):
        self.run_ranks(low_latency_bound)

    def test_settings_that_ranks_do_not_share_are_refused_on_all(self):
        self.run_ranks(unlike)


if __name__ == "__main__":
    unittest.main()
