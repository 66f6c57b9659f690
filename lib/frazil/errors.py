"""The one base class of every error that a user of Frazil can cure."""

import logging

log = logging.getLogger("frazil")
log.addHandler(logging.NullHandler())  # until a workbook opens its file; else Python prints traces on the screen


class FrazilError(ValueError):
    """State what is wrong and what cures it, in words that need no stack trace."""

    decision = False
    """Whether nothing is broken, but a person must say how to go on."""
    logged = False

    def __init__(self, problem: str, cure: str = ""):
        self.problem, self.cure = problem, cure
        super().__init__(f"{problem}\n  cure: {cure}" if cure else problem)

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of a stack trace, which goes to the log; it asks more than once."""
        if not self.logged:
            log.error("shown in the notebook", exc_info=self)
        self.logged = True
        return [f"{type(self).__name__}: {self}"]


def nearest(name: str, known) -> str:
    """Return a hint that names the known word nearest to a wrong one, or lists what is known."""
    import difflib

    close = difflib.get_close_matches(name, [str(k) for k in known], n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else "known: " + ", ".join(sorted(str(k) for k in known))
