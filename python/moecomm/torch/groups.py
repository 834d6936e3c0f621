"""Communicators from what a program has already: a process group of torch.distributed, a group of vLLM, or MPI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Optional, Union

import torch
import torch.distributed as dist

from ..comm import Communicator, unique_id

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..options import GroupOptions


class Members:
    """The members of a group, and how they exchange Python objects. Every method is collective. `group` is one of

    - a torch.distributed.ProcessGroup of any backend, or None for the default group;
    - an object with rank, world_size, broadcast_obj and all_gather_obj, such as vLLM's StatelessProcessGroup;
    - an mpi4py communicator."""

    def __init__(self, group: Any = None):
        if group is None and not (dist.is_available() and dist.is_initialized()):
            raise ValueError("group is None, and torch.distributed has no default group: call init_process_group first")
        self.group: Any = group
        if group is None or isinstance(group, dist.ProcessGroup):
            self.kind, self.rank, self.size = "torch", dist.get_rank(group), dist.get_world_size(group)
        elif hasattr(group, "broadcast_obj") and hasattr(group, "world_size"):
            self.kind, self.rank, self.size = "stateless", group.rank, group.world_size
        elif hasattr(group, "Get_rank") and hasattr(group, "bcast"):
            self.kind, self.rank, self.size = "mpi", group.Get_rank(), group.Get_size()
        else:
            raise TypeError(f"group is a {type(group).__name__}, expected a torch.distributed.ProcessGroup")
        if self.rank < 0:
            raise ValueError("group does not contain this rank")

    def broadcast(self, value: Any) -> Any:
        """The object that rank 0 of the group passed."""
        if self.kind == "mpi":
            return self.group.bcast(value, root=0)
        if self.kind == "stateless":
            return self.group.broadcast_obj(value, src=0)
        box = [value]
        root = 0 if self.group is None else dist.get_global_rank(self.group, 0)
        dist.broadcast_object_list(box, src=root, group=self.group)
        return box[0]

    def all_gather(self, value: Any) -> List[Any]:
        """The objects of all ranks, by rank."""
        if self.kind == "mpi":
            return list(self.group.allgather(value))
        if self.kind == "stateless":
            return list(self.group.all_gather_obj(value))
        found: List[Any] = [None] * self.size
        dist.all_gather_object(found, value, group=self.group)
        return found


def place_of(device: Union[None, str, int, torch.device]) -> torch.device:
    """The device that was meant: None is the current GPU if there is one, otherwise the CPU."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    place = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if place.type not in ("cpu", "cuda"):
        raise ValueError(f"device is {place}, expected cpu or cuda")
    if place.type == "cuda" and place.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return place


def shared_id(members: Members) -> bytes:
    """A new unique id for the members of a group. Collective. Raises rank 0's error on all of them."""
    found: Any = None
    if members.rank == 0:
        try:
            found = unique_id()
        except Exception as error:  # the others wait for it, so they must learn of it
            found = error
    found = members.broadcast(found)
    if isinstance(found, Exception):
        raise found
    return bytes(found)


def join(members: Members, device: Union[None, str, int, torch.device] = None, **settings: Any) -> Communicator:
    """communicator() for Members."""
    for name in ("backend", "nranks", "rank", "identity"):
        if name in settings:
            raise TypeError(f"{name} is given, but it follows from group and device")
    place = place_of(device)
    identity = shared_id(members)
    if place.type == "cuda":
        settings.update(backend="cuda", device=place.index)
    else:
        settings.update(backend="host")
    return Communicator(members.size, members.rank, identity, **settings)


def communicator(
    group: Optional[Any] = None, *, device: Union[None, str, int, torch.device] = None, **settings: Unpack[GroupOptions]
) -> Communicator:
    """Makes a Communicator of the ranks of `group`. Collective over the group, which only carries the unique id: any
    backend will do.

    group     a torch.distributed.ProcessGroup, None for the default group, an object like vLLM's StatelessProcessGroup,
              or an mpi4py communicator
    device    where the tensors of its steps are: "cuda", "cuda:1", an ordinal, or "cpu". It chooses the backend. None:
              the current GPU if torch has one, otherwise the CPU
    settings  the keywords of moecomm.Communicator but for backend and device

    Raises TypeError or ValueError for a group or device that cannot serve, and what Communicator raises. If rank 0
    cannot make the id, all ranks raise its error."""
    return join(Members(group), device, **settings)
