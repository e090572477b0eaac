"""onnxruntime itself: a graph is loaded, and runs. Its errors become ours."""

from functools import cache

import onnxruntime

from edgefl.base.errors import Interrupted, RemoteError


def loaded(graph: bytes, threads: int, *, frugal: bool = False) -> onnxruntime.InferenceSession:
    """The graph, ready to run; `frugal` ones work in memory that they share: only one of them runs at a time."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    options.enable_mem_pattern = False  # planned memory is a second copy of the arena's: megabytes, and no faster
    # One level below the highest, which only adds a memory layout that pays off where weights are constants.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # an idle device should be idle
    options.add_session_config_entry("session.load_model_format", "ONNX")  # and not what else its first bytes may mean
    if frugal:
        _share_memory()
        options.add_session_config_entry("session.use_env_allocators", "1")
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no class of their own
        raise RemoteError("model.failed", f"onnxruntime: {' '.join(str(error).split())}") from error


@cache
def _share_memory() -> None:
    """One arena for this process: with one of its own each graph keeps what it once needed, 5 MB more for LeNet-5."""
    memory = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    onnxruntime.create_and_register_allocator(memory, None)


def run_options() -> onnxruntime.RunOptions:
    """How a graph runs. Where nothing says that no GPU graph is captured, every call looks for it: a tenth of a ms."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("gpu_graph_id", "-1")
    return options


def run(session: onnxruntime.InferenceSession, binding: onnxruntime.IOBinding, options: onnxruntime.RunOptions) -> None:
    """Run a graph with all that is bound; Interrupted if `options` say so meanwhile."""
    try:
        session.run_with_iobinding(binding, options)
    except Exception as error:  # onnxruntime's errors have no class of their own
        if options.terminate:
            raise Interrupted("the model was asked to stop") from None
        raise RemoteError("model.failed", f"onnxruntime: {' '.join(str(error).split())}") from error
