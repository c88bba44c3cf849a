"""Training goes on when a rank dies.

    mpirun --enable-recovery -np 4 python3 examples/python/survive.py
    mpirun --with-ft ulfm -np 4 python3 examples/python/survive.py      with Open MPI 5

    step      1 ...             20                 21 ...             60
    rank 0    gradient --+      gradient --+       gradient --+
    rank 1    gradient --+      gradient --+       gradient --+
    rank 2    gradient --+      kill -9    x                  |
    rank 3    gradient --+      gradient --+       gradient --+
                         v                 v                  v
                    mean of 4         mean of 3          mean of 3

Rank 2 (or rank 1 of two) kills itself. The other ranks continue without any change: DDP's
hook goes on among the living ranks, and their weights stay equal, bit for bit.
"""
import os
import signal
import sys

if {"-h", "--help"} & set(sys.argv):
    print(__doc__)
    sys.exit()

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import baton
import baton.torch

STEPS, LAST_STEP = 60, 20

mode = sys.argv[1] if len(sys.argv) > 1 else "full"
torch.set_num_threads(1)
baton.torch.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
victim = min(2, size - 1)

torch.manual_seed(0)
# DDP must not broadcast buffers: it would send them from rank 0 to all ranks, even dead ones.
model = DistributedDataParallel(torch.nn.Linear(16, 1))
hook = baton.torch.DDPHook(mode=mode, on_loss="continue")
model.register_comm_hook(None, hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
random = torch.Generator().manual_seed(rank)
for step in range(1, STEPS + 1):
    if step == LAST_STEP and rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    x = torch.randn(64, 16, generator=random)
    optimizer.zero_grad()
    loss = (model(x) - x @ torch.arange(16.0).view(16, 1)).square().mean()
    loss.backward()
    optimizer.step()
    if step in (1, LAST_STEP - 1, LAST_STEP, STEPS):
        print(f"step {step}, rank {rank}: {hook.step.living} live, loss {loss.item():.3g}",
              flush=True)
weights = torch.cat([of.detach().view(-1) for of in model.parameters()])

# Collectives of torch.distributed need a process group of the living ranks.
dist.destroy_process_group()
baton.torch.init_process_group(baton.Group.world().shrink(timeout=60))
others = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
dist.all_gather(others, weights)
if all(torch.equal(other, weights) for other in others):
    print(f"rank {rank} goes on as {dist.get_rank()} of {dist.get_world_size()}, with the "
          "weights of the others", flush=True)
