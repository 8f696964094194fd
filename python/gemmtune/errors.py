"""What gemmtune raises: one type a kind of failure, each with the sentence of the C interface."""


class Error(RuntimeError):
    """Every error of gemmtune. `status` is the code of the C interface, 0 where the failure is not one of its."""

    status = 0


class InvalidArgument(Error, ValueError):
    """A value, size, stride or leading dimension is out of range."""

    status = 1


class WrongType(InvalidArgument, TypeError):
    """An array has an element type that the operation does not take."""


class NotFound(Error, LookupError):
    """A file, family, library or device is missing."""

    status = 2


class Unsupported(Error):
    """Legal, but this device or build cannot do it."""

    status = 3


class NoGpu(Unsupported):
    """No driver or no GPU answers."""


class NoCompiler(Unsupported):
    """NVRTC is missing: gemmtune's own GPU kernels cannot be compiled."""


class OtherDevice(Unsupported):
    """A tuned file has rows, but none of this device."""


class TorchTooOld(Unsupported):
    """This PyTorch lacks functions that the operators need."""


class NotPlanned(Error):
    """A stream is being captured into a graph and the plan of a call was not made before."""


class NeedsGradient(Unsupported):
    """A derivative is wanted; gemmtune's kernels have none."""

    sentence = ("gemmtune computes no gradients, and an operand requires one: call it under torch.no_grad() or torch.inference_mode(), call "
                "requires_grad_(False) on the model, or patch(model, gradients=\"torch\")")


class InputOutput(Error, OSError):
    """A file could not be read or written."""

    status = 4


class OutOfMemory(Error, MemoryError):
    """An allocation failed."""

    status = 5


class InternalError(Error):
    """A bug in gemmtune or a library below it."""

    status = 6


class NullPointer(InvalidArgument):
    """A required operand is missing."""

    status = 7


class Misaligned(InvalidArgument):
    """An operand breaks its promised alignment."""

    status = 8


class CommandFailed(Error):
    """The program ended with a usage or input error; the text is its own."""


_by_status = {kind.status: kind for kind in (InvalidArgument, NotFound, Unsupported, InputOutput, OutOfMemory, InternalError,
                                             NullPointer, Misaligned)}


def error_of(status, sentence):
    """The exception of a gemmtune_status with the C interface's sentence."""
    kind = _by_status.get(status, InternalError)
    if kind in (NotFound, Unsupported) and "NVRTC" in sentence:
        kind = NoCompiler
    if kind is InvalidArgument and sentence.startswith("dtype of"):
        kind = WrongType
    error = kind(sentence)
    error.status = status
    return error
