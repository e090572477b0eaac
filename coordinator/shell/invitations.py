"""Send the tasks of a round: to all devices in one call, or to each alone. Small models come with the task."""

from dataclasses import asdict

from coordinator.decide import vocabulary
from coordinator.shell.artifacts import Artifacts
from coordinator.shell.budgets import budget
from coordinator.shell.outbox import CoordinatorOutbox
from coordinator.shell.publisher import Publication
from edgefl.job.config.schema import RunFile
from edgefl.wire.calls import Callee
from edgefl.wire.messages import CALLED, ENCLOSED, Enclosed

ENCLOSED_IN_ALL = 1 << 20  # bytes of a model in all tasks of a round: for more devices the broker copies it
IN_VAIN = 1 << 20  # bytes of models that a call may send in all to devices that it does not ask


class InvitationSender:
    """Sends the tasks of one run."""

    def __init__(self, run: RunFile, artifacts: Artifacts, outbox: CoordinatorOutbox) -> None:
        self.run, self.artifacts, self.outbox = run, artifacts, outbox

    def ask(self, ask: vocabulary.Ask) -> None:
        """Send the task to every device that is asked."""
        task, model = self.artifacts.task(ask.round, ask.opening), self.artifacts.model(ask.round)
        callees = [self._callee(invitee) for invitee in ask.devices]
        if ask.together:
            small = _fits(model, min(CALLED, IN_VAIN // max(1, ask.bystanders)) if self.run.wire.enclose_kb else 0)
            if not small:
                self.artifacts.stand(model)
            self.outbox.call(task, callees, model.manifest if small else b"", model.frame)
            return
        small = _fits(model, min(self.run.wire.enclose_kb << 10, ENCLOSED_IN_ALL // max(1, len(callees))))
        enclosed = Enclosed(manifest=model.manifest, frame=model.frame) if small else None
        if not small or any(invitee.has_model for invitee in ask.devices):
            self.artifacts.stand(model)
        for invitee, one in zip(ask.devices, callees, strict=True):
            own = asdict(one) | {"enclosed": None if invitee.has_model else enclosed}
            del own["device"]
            self.outbox.say(one.device, task.model_copy(update=own))

    def _callee(self, invitee: vocabulary.Invitee) -> Callee:
        work = budget(invitee.seconds_per_step, self.run.rounds.deadline)
        return Callee(invitee.device, invitee.installation, invitee.counted, work.batches, work.seconds)


def _fits(model: Publication, most: int) -> bool:
    return len(model.frame) <= most and len(model.manifest) <= ENCLOSED
