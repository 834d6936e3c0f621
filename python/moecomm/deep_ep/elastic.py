"""DeepEP V2's ElasticBuffer, which is not offered."""

from __future__ import annotations

from typing import Any


class ElasticBuffer:
    """Raises NotImplementedError. Buffer has dispatch and combine for both modes."""

    def __init__(self, *_: Any, **__: Any):
        raise NotImplementedError("ElasticBuffer is not offered: use Buffer, or moecomm.torch.Dispatcher")
