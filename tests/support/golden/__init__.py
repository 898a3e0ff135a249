"""The golden corpus: losses in settings with the answers of `explain`, stored as values.

`make golden` answers every stored pair again and sorts the differences by column and kind.  A difference is
accepted only where `intended.toml` lists it with a reason.  `make golden GOLDEN_FLAGS=--write` chooses the
pairs and stores their answers anew.

    pairs       the choice of losses and settings; `written` has those that are written by hand
    answers     the answer to one pair, as columns of values
    points      the value of a formula at fixed points, for formulas without a canonical form
    codes       the kind of a message: a warning, a hypothesis or a refusal
    compared    the differences between two answers, by column and kind, and the list of intended ones
    stored      the file
    printed     the text, JSON and certificates of 300 answers, word for word
    running     all pairs on all processors
"""
