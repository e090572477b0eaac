"""What is done to an update between a device's training and the coordinator's stages: one list, in two halves.

    device       train ─▶ [privacy] ─▶ error feedback ─▶ codec ─▶ seal ─┐
                                                                        │ the wire
    coordinator  stages ◀─ guards' caps ◀────────────── decode ◀─ open ◀┘

A run file declares the list (`RunFile.transforms`, made by listing.py). It is in the order of the device: the device
halves are carried out from first to last, the coordinator halves from last to first. So the first transform stands
next to the stages, and the last one next to the wire.

    transform.py     what a transform is, and the two folds over a list
    coding.py        error feedback, codec      between numbers and bytes
    sealing.py       seal                       on bytes: a whole frame
    private.py       [privacy]                  its device half is part of training
    update_bounds.py guards' caps               its coordinator half looks at all answers of a round
    listing.py       the list of a run

A transform that hides single updates (`hides`) has the answers of a round added up before its coordinator half is
called. Then no stage, and no transform in front of it in the list, may need single updates: such a run file is refused
(edgefl/job/config/hiding.py).
"""
