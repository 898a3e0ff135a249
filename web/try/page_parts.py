"""What the page adds to klsym's HTML: buttons that ask about a loss, and a select for each name's role."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

from klsym.language.roles import ROLES

FINDING = (
    '<button type="button" class="code" data-code="{code}" aria-expanded="false">{code}</button>'
    " <b>{name}</b>"
)


def ask_button(loss: str, options: Mapping[str, Any], shown: str) -> str:
    """A button that asks for the verdict on this loss."""
    question = {"kind": "explain", "loss": loss, "options": {k: v for k, v in options.items() if v}}
    return (
        f'<button type="button" class="ask" data-question="{escape(json.dumps(question))}">{shown}</button>'
    )


def roles_html(roles: Mapping[str, str], asking: bool = False) -> str:
    """A select for the role of each name; asking: a name without a role has none chosen."""
    if not roles:
        return ""
    labels = "".join(_role(name, role) for name, role in roles.items())
    said = "Choose the role of each name:" if asking else "klsym reads these names as follows:"
    return f'<div class="roles"><p>{said}</p>{labels}</div>'


def _role(name: str, role: str) -> str:
    if role and role not in ROLES:
        choices: tuple[str, ...] = (role, *ROLES)
    else:
        choices = ROLES if role else ("", *ROLES)
    options = "".join(_choice(one, one == role) for one in choices)
    shown = escape(name)
    return f'<label><code>{shown}</code> is <select data-role="{shown}">{options}</select></label>'


def _choice(role: str, is_chosen: bool) -> str:
    chosen = " selected" if is_chosen else ""
    return f'<option value="{escape(role)}"{chosen}>{escape(role or "choose")}</option>'
