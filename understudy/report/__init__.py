"""The HTML report of a reconciliation: one file, no network, readable on a phone, light or dark.

`render` takes the result of the reconciling job (its JSON) and returns the page. Called by
`understudy reconcile --report` and by the demo.
"""

from __future__ import annotations

from understudy.report.page import render

__all__ = ["render"]
