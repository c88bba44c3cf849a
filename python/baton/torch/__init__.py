"""Baton for PyTorch: a backend of torch.distributed, and gradients that do not wait for
slow ranks.

    import baton.torch
    baton.torch.init_process_group()     # torch.distributed's, over the ranks of mpirun

`import baton.torch` registers the backend "baton" with torch.distributed, for tensors in
the memory of the CPU. docs/python.md has its section on PyTorch.
"""
from baton.torch.backend import ProcessGroup, Work, init_process_group

__all__ = ["ProcessGroup", "Work", "init_process_group"]
