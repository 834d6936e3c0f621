"""The communicators of a JAX process: one for each of its devices that takes part."""

from __future__ import annotations

import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Sequence, TypeVar, Union

import jax
import numpy

from .. import errors
from ..comm import Communicator, unique_id

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..options import GroupOptions

One = TypeVar("One")
Found = TypeVar("Found")


def on_each(function: Callable[[One], Found], items: Iterable[One]) -> List[Found]:
    """Calls a function that waits for the other ranks, for several ranks of this process: in a thread each."""
    given = list(items)
    if len(given) == 1:
        return [function(given[0])]
    with concurrent.futures.ThreadPoolExecutor(max(len(given), 1)) as pool:
        return list(pool.map(function, given))


class Communicators:
    """The communicators of this process. communicators() makes it. Use it as a context manager, or call destroy().

    by_device  a Communicator for each device: by the number that XLA gives it in this process"""

    def __init__(self, by_device: Dict[int, Communicator]):
        self.by_device = by_device
        self._locks = {id(comm): threading.Lock() for comm in by_device.values()}

    @property
    def nranks(self) -> int:
        """Ranks of the group, those of other processes included."""
        return next(iter(self.by_device.values())).info.nranks

    def lock_of(self, comm: Communicator) -> threading.Lock:
        """Held during each call of this communicator."""
        return self._locks[id(comm)]

    def of(self, ordinal: Callable[[], int]) -> Communicator:
        """The communicator of the device with this number. With one communicator, that one, on every device."""
        if len(self.by_device) == 1:
            (found,) = self.by_device.values()
            return found
        number = ordinal()
        if number not in self.by_device:
            raise errors.InvalidUsage(f"device {number} has no communicator, only {sorted(self.by_device)} have one")
        return self.by_device[number]

    def __enter__(self) -> Communicators:
        return self

    def __exit__(self, *_: Any) -> None:
        self.destroy()

    def destroy(self) -> None:
        """Destroys the communicators. Programs that use them must have run. Collective. Idempotent."""
        on_each(Communicator.destroy, self.by_device.values())


def _devices_of(given: Any) -> List[Any]:
    chosen = jax.devices() if given is None else getattr(given, "devices", given)
    return list(numpy.asarray(chosen, dtype=object).ravel())


def _shared_id() -> bytes:
    """The same on every process."""
    if jax.process_count() == 1:
        return unique_id()
    from jax.experimental import multihost_utils

    own = unique_id() if jax.process_index() == 0 else bytes(128)
    found = multihost_utils.broadcast_one_to_all(numpy.frombuffer(own, numpy.uint8))
    return bytes(numpy.asarray(found).astype(numpy.uint8).tobytes())


def communicators(
    devices: Union[None, Sequence[Any], jax.sharding.Mesh] = None, **settings: Unpack[GroupOptions]
) -> Communicators:
    """Makes one rank of each device. All processes of jax.distributed call it, each for its own devices.

    devices   the devices of all processes in the order of their ranks, or a Mesh of them; None: jax.devices(). Expert e
              is on the device that has e in its range, so a Mesh has one axis, over which experts are sharded
    settings  the keywords of moecomm.Communicator but for backend and device, which follow from the devices

    Raises what Communicator raises."""
    ranks = _devices_of(devices)
    own = [rank for rank, device in enumerate(ranks) if device.process_index == jax.process_index()]
    identity = _shared_id()
    if not own:
        raise errors.InvalidUsage("none of the devices belongs to this process")

    def join(rank: int) -> Communicator:
        device = ranks[rank]
        if device.platform == "cpu":
            return Communicator(len(ranks), rank, identity, backend="host", **settings)
        return Communicator(len(ranks), rank, identity, backend="cuda", device=device.local_hardware_id, **settings)

    numbers = [ranks[rank].id if ranks[rank].platform == "cpu" else ranks[rank].local_hardware_id for rank in own]
    return Communicators(dict(zip(numbers, on_each(join, own))))


def as_communicators(given: Union[Communicator, Communicators]) -> Communicators:
    """One communicator serves whatever device its process uses."""
    if isinstance(given, Communicator):
        return Communicators({0: given})
    if not isinstance(given, Communicators):
        raise TypeError(f"comm is a {type(given).__name__}, expected a Communicator or Communicators")
    return given
