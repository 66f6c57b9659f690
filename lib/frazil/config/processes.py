"""Whether the process that started something still runs."""

ROUNDING_S = 2.0
"""Seconds by which a process can seem to start after what it did: both times are whole seconds."""


def is_running(pid: int, began: float) -> bool:
    """Return whether the process runs that did something at `began`, in epoch seconds; process ids are reused.

    A process that has ended is listed as a zombie until its parent asks for its result, in many containers forever.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= began + ROUNDING_S
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:  # another user's
        return True
