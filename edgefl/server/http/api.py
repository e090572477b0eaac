"""The API of a server: /api/v1, described by /openapi.json.

Reading is for viewers, runs are for operators, code and folders on the server's disk for admins. What is asked is
carried out in the server's turn (`Operations.ask`), and every change is written into the audit log with its outcome,
refusals included. A fleet that is not a person's is not there for them.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import TimeoutError as NoAnswer
from contextlib import contextmanager
from pathlib import Path
from threading import Semaphore
from typing import Annotated, Any, Literal, Protocol, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from edgefl.base.errors import ConfigError, EdgeflError, StoreError
from edgefl.base.version import __version__
from edgefl.fleet import audit
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.audit import AuditLog, Deed
from edgefl.fleet.authority import clock
from edgefl.fleet.folder import FleetFolder
from edgefl.ops import diagnosis
from edgefl.server import calendar, submitting
from edgefl.server.decide.alerts import Alert
from edgefl.server.decide.runs import QueuedRun, ServerState
from edgefl.server.decide.vocabulary import Wish
from edgefl.server.http.guard import PRINCIPAL
from edgefl.server.http.models import (
    AlertInfo,
    AuditLines,
    DeviceAnswer,
    DeviceInfo,
    FleetInfo,
    LabelsBody,
    LogLines,
    Name,
    NewRun,
    Priority,
    Problem,
    Prune,
    Pruning,
    RunInfo,
    ScheduleInfo,
    Submitted,
    alert_info,
    device_info,
    run_info,
    schedule_info,
)
from edgefl.server.people import Principal, Role
from edgefl.server.shell.service import Server
from edgefl.system.clock import Clock
from edgefl.watch.page.feed import Feed

log = logging.getLogger(__name__)

T = TypeVar("T")
MOST_LINES = 2000
ASKING, ANSWER = 8, 20.0  # devices that are asked at the same time; seconds for an answer


class Operations(Protocol):
    """What the API needs of the server around it."""

    @property
    def clock(self) -> Clock: ...

    @property
    def folder(self) -> Path: ...

    @property
    def feeds(self) -> Mapping[str, Feed]: ...

    @property
    def audit(self) -> AuditLog: ...

    def ask(self, call: Callable[[Server], T]) -> T:
        """Have this done in the server's turn."""
        ...

    def log_of(self, run: str) -> Path:
        """Where a run's coordinator writes its log."""
        ...


class ApiRefusal(Exception):  # noqa: N818 - what it is
    """An answer other than 2xx."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status, self.error = status, error


def application(operations: Operations) -> FastAPI:
    """The API as an application; who asks stands in the scope of each request."""
    app = FastAPI(
        title="edgefl server",
        version=__version__,
        docs_url=None,  # its page would be fetched from elsewhere
        redoc_url=None,
        openapi_url="/openapi.json",
        description="Runs, schedules, devices and the audit log of one edgefl server.",
    )
    app.include_router(_routes(operations))
    app.add_exception_handler(ApiRefusal, _refused)
    app.add_exception_handler(EdgeflError, _failed)
    app.add_exception_handler(NoAnswer, _no_answer)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _of_http)
    return app


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in (400, 401, 403, 404, 409, 413, 422, 503)
}
RunName = Annotated[Name, InPath(description="A run, or a schedule.")]
AlertId = Annotated[str, InPath(pattern="^[0-9a-f]{24}$", description="The id of an open alert.")]
DeviceParameter = Annotated[Name, InPath(description="A device of the fleet.")]
FleetParameter = Annotated[Name, InPath(description="A fleet of this server.")]


def _principal(role: Role) -> Callable[[Request], Principal]:
    def asked_by(request: Request) -> Principal:
        principal: Principal | None = request.scope.get(PRINCIPAL)
        if principal is None:
            raise ApiRefusal(401, "a token is needed")
        if not principal.may(role):
            raise ApiRefusal(403, f"'{principal.name}' is {principal.role}; this is for {role}s")
        return principal

    return asked_by


Viewer = Annotated[Principal, Depends(_principal("viewer"))]
Operator = Annotated[Principal, Depends(_principal("operator"))]
Admin = Annotated[Principal, Depends(_principal("admin"))]


def _routes(operations: Operations) -> APIRouter:  # noqa: C901, PLR0915  a table of what can be asked
    routes = APIRouter(prefix="/api/v1", responses=ERRORS)

    @contextmanager
    def audited(request: Request, principal: Principal, what: str, subject: str = "") -> Iterator[dict[str, str]]:
        """Write down what a person wanted, and what became of it; the block may say more of what it is about."""
        about = {"subject": subject, "fleet": ""}
        origin = request.client.host if request.client else ""
        try:
            yield about
        except (ApiRefusal, EdgeflError) as error:
            refused = Deed(principal.name, what, origin, about["fleet"], about["subject"], "refused", str(error))
            _write(operations, refused)
            raise
        _write(operations, Deed(principal.name, what, origin, about["fleet"], about["subject"]))

    def state() -> ServerState:
        return operations.ask(lambda server: server.state)

    asking = Semaphore(ASKING)

    def one_fleet(principal: Principal, fleet: str) -> str:
        if fleet not in operations.feeds or not principal.sees(fleet):
            raise ApiRefusal(404, f"there is no fleet '{fleet}' here")
        return fleet

    def one_run(principal: Principal, name: str, known: ServerState) -> QueuedRun:
        run = known.runs.get(name)
        if run is None or not principal.sees(run.submission.fleet):
            raise ApiRefusal(404, f"there is no run '{name}' here")
        return run

    def may_change(principal: Principal, name: str) -> str:
        """Refuse what is not theirs; the fleet."""
        known = state()
        schedule = known.schedules.get(name)
        if schedule is not None and name not in known.runs:
            if not principal.sees(schedule.submission.fleet):
                raise ApiRefusal(404, f"there is no run '{name}' here")
            return schedule.submission.fleet
        return one_run(principal, name, known).submission.fleet

    @routes.get("/runs", summary="All runs: those that wait, that work, and that have ended.")
    def list_runs(principal: Viewer, fleet: Annotated[Name | None, Query()] = None) -> tuple[RunInfo, ...]:
        known = state()
        shown = [run for run in known.runs.values() if principal.sees(run.submission.fleet)]
        chosen = [run for run in shown if fleet in (None, run.submission.fleet)]
        return tuple(run_info(run, known) for run in sorted(chosen, key=lambda run: run.number))

    @routes.post("/runs", status_code=201, summary="Queue a run, or set a schedule.")
    def submit(request: Request, principal: Operator, new: NewRun) -> Submitted:
        admin = principal.may("admin")
        with audited(request, principal, "run.submit") as about:
            if new.beside and not admin:
                raise ApiRefusal(403, "a folder on the server's disk is for admins to name")
            submission = submitting.submission_of(
                new.run_file, new.sets, operations.folder, beside=new.beside, priority=new.priority, code=admin
            )
            about |= {"subject": submission.name, "fleet": submission.fleet}
            if not principal.sees(submission.fleet):
                raise ApiRefusal(404, f"there is no fleet '{submission.fleet}' here")
            name = operations.ask(lambda server: server.submit(new.request, submission, principal.name))
        return Submitted(name=name, kind="schedule" if submission.recurring else "run")

    @routes.get("/runs/{name}", summary="One run.")
    def show_run(principal: Viewer, name: RunName) -> RunInfo:
        known = state()
        return run_info(one_run(principal, name, known), known)

    @routes.get("/runs/{name}/log", summary="The end of what its coordinator has written.")
    def run_log(principal: Viewer, name: RunName, lines: Annotated[int, Query(ge=1, le=MOST_LINES)] = 100) -> LogLines:
        one_run(principal, name, state())
        return LogLines(lines=tuple(_last_lines(operations.log_of(name), lines)))

    def carry_out(request: Request, principal: Principal, name: str, wish: Wish) -> None:
        with audited(request, principal, f"run.{wish}", name) as about:
            about["fleet"] = may_change(principal, name)
            operations.ask(lambda server: server.wish(name, wish, principal.name))

    @routes.post("/runs/{name}/pause", status_code=204, summary="Stop a run for now, or a schedule.")
    def pause(request: Request, principal: Operator, name: RunName) -> None:
        carry_out(request, principal, name, "pause")

    @routes.post("/runs/{name}/resume", status_code=204, summary="Let a paused run, or schedule, go on.")
    def resume(request: Request, principal: Operator, name: RunName) -> None:
        carry_out(request, principal, name, "resume")

    @routes.post("/runs/{name}/cancel", status_code=204, summary="End a run for good; remove a schedule.")
    def cancel(request: Request, principal: Operator, name: RunName) -> None:
        carry_out(request, principal, name, "cancel")

    @routes.put("/runs/{name}/priority", status_code=204, summary="Let a run go before others, or after.")
    def prioritise(request: Request, principal: Operator, name: RunName, new: Priority) -> None:
        with audited(request, principal, "run.priority", name) as about:
            about["fleet"] = may_change(principal, name)
            operations.ask(lambda server: server.prioritise(name, new.priority, principal.name))

    @routes.post("/prune", summary="Delete the folders of finished runs, but for the newest.")
    def prune(request: Request, principal: Admin, body: Prune) -> Pruning:
        with audited(request, principal, "run.prune", str(body.keep)):
            deleted = operations.ask(lambda server: server.prune(body.keep, principal.name))
        return Pruning(deleted=tuple(deleted))

    @routes.get("/schedules", summary="All schedules.")
    def list_schedules(principal: Viewer) -> tuple[ScheduleInfo, ...]:
        known, wall = state(), operations.clock.wall()
        shown = [one for _, one in sorted(known.schedules.items()) if principal.sees(one.submission.fleet)]
        due = {one.name: calendar.due(one.submission.recurring, wall) for one in shown if one.submission.recurring}
        return tuple(schedule_info(one, known, due[one.name].next if one.name in due else None) for one in shown)

    @routes.get("/fleets", summary="The fleets of this server.")
    def list_fleets(principal: Viewer) -> tuple[FleetInfo, ...]:
        states = operations.ask(lambda server: {name: fleet.state for name, fleet in server.fleets.items()})
        return tuple(
            FleetInfo(
                name=name,
                broker=str(FleetFolder(name).read_settings().broker),
                members=len(known.members),
                online=len(known.online),
                samples=known.samples,
            )
            for name, known in sorted(states.items())
            if principal.sees(name)
        )

    @routes.get("/fleets/{fleet}/devices", summary="The devices of a fleet, and how they are.")
    def list_devices(principal: Viewer, fleet: FleetParameter) -> tuple[DeviceInfo, ...]:
        feed = operations.feeds.get(fleet)
        if feed is None or not principal.sees(fleet):
            raise ApiRefusal(404, f"there is no fleet '{fleet}' here")
        rows = feed.look(lambda overview: [device_info(row) for row in overview.devices.values()])
        return tuple(sorted(rows, key=lambda row: row.name))

    def open_alerts(principal: Principal) -> list[Alert]:
        known = operations.ask(lambda server: server.alerts.state.open if server.alerts is not None else [])
        return [alert for alert in known if principal.sees(alert.fleet)]

    @routes.get("/alerts", summary="What needs a person, the oldest first, and what a person knows of already.")
    def list_alerts(principal: Viewer) -> tuple[AlertInfo, ...]:
        wall = operations.clock.wall()
        return tuple(alert_info(alert, wall) for alert in open_alerts(principal))

    @routes.post("/alerts/{id}/quiet", status_code=204, summary="Say that this alert is known: its end is not told.")
    def quiet(request: Request, principal: Operator, id: AlertId) -> None:
        with audited(request, principal, "alert.quiet", id) as about:
            alert = next((alert for alert in open_alerts(principal) if alert.id == id), None)
            if alert is None:
                raise ApiRefusal(404, f"there is no open alert '{id}' here")
            about |= {"fleet": alert.fleet, "subject": f"{alert.kind} {alert.subject}"}
            operations.ask(lambda server: server.quiet(id, principal.name))

    @routes.put("/fleets/{fleet}/devices/{device}/labels", summary="Give a device labels, by which runs choose it.")
    def label(
        request: Request, principal: Operator, fleet: FleetParameter, device: DeviceParameter, new: LabelsBody
    ) -> LabelsBody:
        with audited(request, principal, "device.label", device) as about:
            about["fleet"] = one_fleet(principal, fleet)
            opened = FleetAdministration(fleet)
            opened.label([device], new.labels, clock())
        return LabelsBody(labels=dict(opened.members.members[device].labels))

    @routes.post("/fleets/{fleet}/devices/{device}/ask/{what}", summary="Ask a device how it is: doctor, logs, vitals.")
    def ask_device(
        request: Request,
        principal: Operator,
        fleet: FleetParameter,
        device: DeviceParameter,
        what: Literal["doctor", "logs", "vitals"],
    ) -> DeviceAnswer:
        with audited(request, principal, f"device.{what}", device) as about:
            about["fleet"] = one_fleet(principal, fleet)
            if not asking.acquire(blocking=False):
                raise ApiRefusal(503, f"{ASKING} devices are asked already: try again in a moment")
            try:
                reply = diagnosis.ask(diagnosis.line(fleet), device, what, principal.name, ANSWER)
            finally:
                asking.release()
        return DeviceAnswer.model_validate(reply.model_dump(include=set(DeviceAnswer.model_fields)))

    @routes.get("/audit", summary="Who did what: the newest lines, and whether the log is whole.")
    def read_audit(principal: Admin, lines: Annotated[int, Query(ge=1, le=MOST_LINES)] = 200) -> AuditLines:
        if principal.fleets:
            raise ApiRefusal(403, "the audit log is of all fleets of this server")
        book = operations.audit
        fault = audit.verify(book.disk, book.signer.key)
        return AuditLines(head=str(book.head()), fault=fault, entries=tuple(book.entries())[-lines:])

    return routes


def _write(operations: Operations, deed: Deed) -> None:
    """Write a line of the audit log; where the disk is full the deed is logged, and carried out all the same."""
    try:
        operations.audit.write(deed, operations.clock.wall())
    except StoreError as error:
        log.warning("not in the audit log who=%s what=%s subject=%s why=%s", deed.who, deed.what, deed.subject, error)


def _last_lines(path: Path, count: int) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - count * 400))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from None


def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiRefusal)  # noqa: S101 - it is registered for these
    return JSONResponse({"error": error.error}, error.status)


def _failed(_: Request, error: Exception) -> JSONResponse:
    """What is wrong with a request is the caller's (409 for what is not possible now), a full disk the server's."""
    return JSONResponse({"error": str(error)}, 409 if isinstance(error, ConfigError) else 503)


def _no_answer(_: Request, __: Exception) -> JSONResponse:
    return JSONResponse({"error": "the server is busy: try again in a moment"}, 503, {"Retry-After": "5"})


def _of_http(_: Request, error: Exception) -> JSONResponse:
    """No such path, another method, or a body that is no JSON."""
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for these
    return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)


def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - it is registered for these
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return JSONResponse({"error": f"{where}: {first['msg']}"}, 422)
