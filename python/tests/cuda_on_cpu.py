"""Lets programs that were written for GPUs run on CPU tensors, for deep_ep_upstream.py: device "cuda" means the CPU,
torch.distributed's nccl means gloo, and streams have nothing to do. torch.cuda.is_available() stays False."""

import functools

import torch
from torch.overrides import TorchFunctionMode

LARGEST_FILLER = 1 << 22  # elements. Random matrices beyond that only keep a GPU busy, and get 64 rows and columns


def _on_cpu(value):
    """The value, or torch.device("cpu") if it names a GPU."""
    names_gpu = isinstance(value, (str, torch.device)) and torch.device(value).type == "cuda"
    return torch.device("cpu") if names_gpu else value


class _OnCpu(TorchFunctionMode):
    """Replaces the device of every call that makes a tensor or moves it."""

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        keywords = dict(keywords or {})
        if keywords.get("device") is not None:
            keywords["device"] = _on_cpu(keywords["device"])
        if function is torch.Tensor.cuda:
            return arguments[0]
        if function is torch.Tensor.to:
            arguments = tuple(_on_cpu(value) if isinstance(value, torch.device) else value for value in arguments)
        if function is torch.randn and torch.Size(*arguments[:1]).numel() > LARGEST_FILLER and len(arguments[0]) == 2:
            arguments = ((64, 64), *arguments[1:])
        return function(*arguments, **keywords)


def install():
    """Changes torch in this process, for this thread. Call it before the program is imported."""
    _OnCpu().__enter__()
    torch.cuda.set_device = torch.cuda.synchronize = lambda *_, **__: None
    torch.cuda.current_device = lambda: 0
    set_default_device, init_process_group = torch.set_default_device, torch.distributed.init_process_group

    @functools.wraps(set_default_device)
    def on_cpu(device):
        set_default_device(_on_cpu(device))

    @functools.wraps(init_process_group)  # keeps the signature, which programs look at
    def by_gloo(backend=None, *arguments, device_id=None, **keywords):
        return init_process_group("gloo", *arguments, **keywords)

    all_gather_into_tensor = torch.distributed.all_gather_into_tensor

    def flat(output, rows, *arguments, **keywords):
        """nccl takes outputs of any shape, gloo does not."""
        return all_gather_into_tensor(output.view(-1), rows.reshape(-1), *arguments, **keywords)

    torch.set_default_device, torch.distributed.init_process_group = on_cpu, by_gloo
    torch.distributed.all_gather_into_tensor = flat
