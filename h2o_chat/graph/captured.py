"""Work on a device that the host asks for in one launch, however many kernels it is."""

from collections.abc import Callable

import torch


def captured(work: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Returns what repeats some work with the same addresses: a CUDA graph.

    The work has run before, so that its kernels are compiled, and does not run now. On a CPU, under Triton's
    interpreter, it is the work itself.
    """
    if device.type != "cuda":
        return work
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    # A workspace that cuBLAS takes while a graph is captured dies with that graph: none is left to the next.
    torch._C._cuda_clearCublasWorkspaces()
    with torch.cuda.device(device), torch.cuda.graph(graph, stream=torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]
        work()
    torch._C._cuda_clearCublasWorkspaces()
    return graph.replay
