"""Exceptions: one for each status of libbaton that is an error.

Each is a `baton.Error`. Its text is the sentence of `baton_error_message()`, and `status` is the
number of the status. If Python has an exception with the same meaning, the class derives from
that exception, too.
"""


class Error(RuntimeError):
    """A call failed. `str()` is a whole sentence: it names the object, and says what is wrong and
    what to do. `status` is libbaton's number of the status, and `name` its name."""

    status = 0
    name = ""

    def __init_subclass__(cls, name: str = "") -> None:
        cls.name = name or cls.name


class Invalid(Error, ValueError, name="BATON_ERR_INVALID"):
    """An argument is wrong; the message says which, and what it may be."""


class State(Error, name="BATON_ERR_STATE"):
    """The object is not in a state that allows this: destroyed, not started, or in a
    process that was forked."""


class Busy(Error, name="BATON_ERR_BUSY"):
    """An epoch is still running, or an object still exists that was made in the one to destroy."""


class NoMemory(Error, MemoryError, name="BATON_ERR_NO_MEMORY"):
    """The host, or this process's control group, does not have enough memory left."""


class Limit(Error, OverflowError, name="BATON_ERR_LIMIT"):
    """A limit of the transport or of a type is exceeded."""


class Unsupported(Error, NotImplementedError, name="BATON_ERR_UNSUPPORTED"):
    """This build, or this machine, can't do it."""


class Cycle(Error, ValueError, name="BATON_ERR_CYCLE"):
    """A schedule's nodes wait for each other; the message prints the cycle."""


class Hazard(Error, ValueError, name="BATON_ERR_HAZARD"):
    """Two nodes use the same bytes, one of them writes, and no edge orders them."""


class Unreachable(Error, ValueError, name="BATON_ERR_UNREACHABLE"):
    """A node of a schedule can never fire."""


class Mismatch(Error, ValueError, name="BATON_ERR_MISMATCH"):
    """Ranks disagree: on a count, a type, an operation, an option, a message."""


class TimedOut(Error, TimeoutError, name="BATON_ERR_TIMEOUT"):
    """The timeout has passed. The operation goes on: wait again, or cancel it."""


class Cancelled(Error, name="BATON_ERR_CANCELLED"):
    """The epoch was cancelled, here or on a peer."""


class Failed(Error, name="BATON_ERR_FAILED"):
    """A node of the epoch failed, here or on a peer; or the group needs a recovery first."""


class PeerLost(Error, ConnectionError, name="BATON_ERR_TRANSPORT"):
    """A rank is gone: it was killed, or does not answer. The message names it."""


class SystemFailed(Error, OSError, name="BATON_ERR_SYSTEM"):
    """A system call failed; the message names it."""


class Deadlock(Error, name="BATON_ERR_DEADLOCK"):
    """Ranks wait for each other; the message says which node for which."""


class Interrupted(Error, InterruptedError, name="BATON_ERR_INTERRUPTED"):
    """`baton_engine_interrupt` ended the wait. The epoch goes on."""
