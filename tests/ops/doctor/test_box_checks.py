"""What is said of the box that graphs run in."""

from edgefl.job.config.local_compute import LocalCompute
from edgefl.ops.doctor.box import box, confined


def test_a_box_that_is_switched_off_is_a_warning_with_its_remedy() -> None:
    finding = box(LocalCompute(box=False))
    assert (finding.level, finding.remedy) == ("warning", "set compute.box = true")


def test_what_the_kernel_does_not_give_is_named() -> None:
    finding = confined(["limits"], ["landlock", "seccomp"])
    assert finding.level == "warning"
    assert "without landlock, seccomp" in finding.text


def test_it_is_tried_for_real() -> None:
    finding = box(LocalCompute())
    assert "limits" in finding.text
    assert "report" not in finding.remedy
