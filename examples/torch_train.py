"""Trains two MoE blocks whose experts live on different ranks, and prints the loss of each step. Needs torch.

    torchrun --nproc-per-node 4 examples/torch_train.py   with moecomm, on GPUs if there are some
    python3 examples/torch_train.py                       plain torch with all experts in one process: the same losses
"""

import os
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python"))
import moecomm.torch as moe  # noqa: E402
TOKENS, HIDDEN, EXPERTS, TOPK, STEPS = 256, 64, 8, 2, 12
RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
mine = lambda everything: everything.chunk(RANKS)[RANK].clone()  # noqa: E731  of what all ranks have made alike


class Block(torch.nn.Module):
    def __init__(self, dispatcher):
        super().__init__()
        self.dispatcher, self.router = dispatcher, torch.nn.Parameter(torch.randn(HIDDEN, EXPERTS))
        self.experts = torch.nn.Parameter(mine(torch.randn(EXPERTS, 2, HIDDEN, HIDDEN) / HIDDEN**0.5))

    def expert(self, e, rows):
        return torch.relu(rows @ self.experts[e, 0]) @ self.experts[e, 1]

    def forward(self, x):
        weights, ids = (x @ self.router).softmax(dim=1).topk(TOPK)
        if self.dispatcher is None:
            shares = [(weights * (ids == e)).sum(dim=1, keepdim=True) for e in range(EXPERTS)]
            return x + sum(share * self.expert(e, x) for e, share in enumerate(shares))
        got = self.dispatcher.dispatch(x, ids, weights)  # rows of other ranks' tokens, grouped by local expert
        made = [self.expert(e, rows) for e, rows in enumerate(got.rows.split(got.rows_per_expert.tolist()))]
        return x + self.dispatcher.combine(torch.cat(made), got, weights="apply")


torch.manual_seed(0)
device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"
comm = dispatcher = None
if RANKS > 1:
    dist.init_process_group("gloo")
    comm = moe.communicator(device=device)
    dispatcher = moe.Dispatcher(comm, EXPERTS, TOPK, layout="expert-major")
blocks = torch.nn.Sequential(Block(dispatcher), Block(dispatcher)).to(device)
x = mine(torch.randn(TOKENS, HIDDEN)).to(device)
optimizer = torch.optim.SGD(blocks.parameters(), lr=0.5)
for _ in range(STEPS):
    loss = (blocks(x) - x.roll(1, dims=1)).square().sum() / (TOKENS * HIDDEN)
    loss.backward()
    shared = [loss.detach(), *(block.router.grad for block in blocks)]  # experts' gradients are complete already
    for tensor in shared if RANKS > 1 else ():
        dist.all_reduce(tensor)
    optimizer.step()
    optimizer.zero_grad()
    if RANK == 0:
        print(f"{loss.item():.6f}")
if comm:
    comm.destroy()
