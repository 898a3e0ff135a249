"""Audits as a linter: targets of a configuration, findings with codes, suppressions, a baseline, reports."""
