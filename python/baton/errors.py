"""Exceptions: one for each status of libbaton that is an error.

Each is a `baton.Error`, with the sentence of `baton_error_message()` as its text and the
number of the status in `status`. Where Python has an exception for the same thing, it is
that, too.
"""


class Error(RuntimeError):
    """A call failed. `str()` is the whole sentence: the object's name, what is wrong,
    what to do. `status` is libbaton's number, and `name` its name."""

    status = 0
    name = ""


class Invalid(Error, ValueError):
    """An argument is wrong; the message says which, and what it may be."""

    name = "BATON_ERR_INVALID"


class State(Error, RuntimeError):
    """The object is not in a state that allows this: destroyed, not started, or in a
    process that was forked."""

    name = "BATON_ERR_STATE"


class Busy(Error, RuntimeError):
    """An epoch is still running, or something that was made in it still exists."""

    name = "BATON_ERR_BUSY"


class NoMemory(Error, MemoryError):
    """The host, or this process's control group, has not that much memory left."""

    name = "BATON_ERR_NO_MEMORY"


class Limit(Error, OverflowError):
    """A limit of the transport or of a type is exceeded."""

    name = "BATON_ERR_LIMIT"


class Unsupported(Error, NotImplementedError):
    """This build, or this machine, can't do it."""

    name = "BATON_ERR_UNSUPPORTED"


class Cycle(Error, ValueError):
    """A schedule's nodes wait for each other; the message prints the cycle."""

    name = "BATON_ERR_CYCLE"


class Hazard(Error, ValueError):
    """Two nodes use the same bytes, one of them writes, and no edge orders them."""

    name = "BATON_ERR_HAZARD"


class Unreachable(Error, ValueError):
    """A node of a schedule can never fire."""

    name = "BATON_ERR_UNREACHABLE"


class Mismatch(Error, ValueError):
    """Ranks disagree: on a count, a type, an operation, an option, a message."""

    name = "BATON_ERR_MISMATCH"


class TimedOut(Error, TimeoutError):
    """The time is over. What was waited for goes on: wait again, or cancel it."""

    name = "BATON_ERR_TIMEOUT"


class Cancelled(Error):
    """The epoch was cancelled, here or on a peer."""

    name = "BATON_ERR_CANCELLED"


class Failed(Error, RuntimeError):
    """A node of the epoch failed, here or on a peer; or what runs needs a recovery."""

    name = "BATON_ERR_FAILED"


class PeerLost(Error, ConnectionError):
    """A rank is gone: it was killed, or does not answer. The message names it."""

    name = "BATON_ERR_TRANSPORT"


class SystemFailed(Error, OSError):
    """A system call failed; the message names it."""

    name = "BATON_ERR_SYSTEM"


class Deadlock(Error, RuntimeError):
    """Ranks wait for each other; the message says which node for which."""

    name = "BATON_ERR_DEADLOCK"


class Interrupted(Error, InterruptedError):
    """`baton_engine_interrupt` ended the wait. What was waited for goes on."""

    name = "BATON_ERR_INTERRUPTED"
