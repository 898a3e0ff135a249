"""The one literal oracle of the tests: finite worlds are enumerated, word for word.

numbers: jets, which carry derivatives along two axes.  losses: what a loss given as text is worth and which
way it pushes, on trees of tokens and batches of their sequences.  statements, worlds: what a statement of
klsym says, also where densities are 0.  Nothing of klsym is imported but the terms of a statement, as data.
"""
