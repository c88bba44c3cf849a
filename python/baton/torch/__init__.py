"""Baton for PyTorch: a backend of torch.distributed, and gradients that do not wait for
slow ranks.

    import baton.torch
    baton.torch.init_process_group()     # torch.distributed's, over the ranks of mpirun
    model = DistributedDataParallel(module)
    model.register_comm_hook(None, baton.torch.DDPHook(mode="majority"))

`import baton.torch` registers the backend "baton" with torch.distributed, for tensors in
the memory of the CPU. `DDPHook` averages gradients in one of Baton's modes, `average_gradients`
in loops without DistributedDataParallel. docs/torch.md has the modes, and the limits.
"""
from baton.torch.average import DDPHook, GradientAverager, Step, average_gradients
from baton.torch.backend import ProcessGroup, Work, init_process_group

__all__ = ["DDPHook", "GradientAverager", "ProcessGroup", "Step", "Work",
           "average_gradients", "init_process_group"]
