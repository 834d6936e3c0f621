"""What moecomm adds to DeepEP's buffers: they sleep and wake, can be checkpointed, and go on after a failure."""

from __future__ import annotations

from typing import List

from .routes import Routes


class Standing:
    """A buffer whose communicators are those of `routes`."""

    routes: Routes

    def suspend(self) -> None:
        """Gives the window memory of all ranks back until resume(), for an engine that sleeps. Not in DeepEP. Collective.
        Handles and captured graphs stay. Calls meanwhile raise InvalidUsage. Raises what Communicator.suspend raises;
        then nothing has changed."""
        self.routes.suspend()

    def resume(self) -> None:
        """Takes fresh memory to the same addresses. Not in DeepEP. Collective. Raises what Communicator.resume raises.
        After that it may be called again."""
        self.routes.resume()

    def checkpoint_prepare(self) -> None:
        """Suspends the buffer, and closes what ties it to other processes, so that all processes can be checkpointed with
        CRIU and cuda-checkpoint. Not in DeepEP. Collective. Does nothing if it has been called already. Raises what
        Communicator.suspend and Communicator.disconnect raise. After that it may be called again."""
        self.routes.checkpoint_prepare()

    def checkpoint_restore(self) -> None:
        """Lets all ranks meet again, perhaps on other hosts, and resumes the buffer. Not in DeepEP. Collective. The group
        with which the buffer was made carries the ids, so it must work again. Does nothing if the buffer is awake. Raises
        what Communicator.reconnect and Communicator.resume raise. After that it may be called again."""
        self.routes.checkpoint_restore()

    def recover(self, timeout_ms: int, losses_max: int = 0) -> List[int]:
        """Goes on after a failure: a rank came too late, or has died. Not in DeepEP. Collective: all living ranks call it,
        and then repeat the same calls. Captured graphs stay. Handles of earlier dispatches are lost, and so are hooks
        that were not called.

        timeout_ms  1..86400000: how long this rank waits for the others
        losses_max  the most ranks that the group may go on without, earlier losses included, alike on all ranks. Entries
                    that name an expert of a lost rank count as unused

        Returns the lost ranks, ascending. With lost ranks, calls that need the group's own backend raise InvalidUsage:
        those that need a larger communicator, and dispatches without topk_idx and num_worst_tokens.

        Raises what Communicator.recover raises. Then it may be called again, on all living ranks."""
        return self.routes.recover(timeout_ms, losses_max)
