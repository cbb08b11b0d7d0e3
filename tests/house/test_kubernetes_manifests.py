"""The manifests of deploy/kubernetes are valid, hardened, and agree with compose.yaml, the units and the commands."""

import importlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from usher.cli.main import root

# It comes with mkdocs and has no types.
yaml: Any = importlib.import_module("yaml")
TREE = Path(__file__).parents[2]
FILES = sorted((TREE / "deploy" / "kubernetes").glob("*.yaml"))
VALIDATOR = TREE / "tests" / "support" / "kubernetes"
COMPOSE = yaml.safe_load((TREE / "compose.yaml").read_text())["services"]
ROLES = sorted(set(COMPOSE) - {"database", "migrate"})
READY = {"mgmt": "/readyz", "front": "/readyz"}
# The front-end keeps nothing; MGMT keeps only the secret for callers on its own machine.
STATELESS = {"mgmt", "front", "watchdog", "scheduler"}
LOADED = [document for file in FILES for document in yaml.safe_load_all(file.read_text())]


def documents(*kinds: str) -> Iterator[dict[str, Any]]:
    return (document for document in LOADED if document["kind"] in kinds)


WORKLOADS = {each["metadata"]["name"]: each for each in documents("Deployment", "StatefulSet")}
SERVICES = {each["metadata"]["name"]: each["spec"] for each in documents("Service")}
[CONFIG] = documents("ConfigMap")
each_role = pytest.mark.parametrize("role", ROLES)


def pod(role: str) -> dict[str, Any]:
    spec: dict[str, Any] = WORKLOADS[role]["spec"]["template"]["spec"]
    return spec


def container(role: str) -> dict[str, Any]:
    [only] = pod(role)["containers"]
    assert only["name"] == role
    result: dict[str, Any] = only
    return result


def options(words: list[str]) -> dict[str, str]:
    """The options of a command, each with its value; an option without one has an empty value."""
    pairs: dict[str, str] = {}
    for word in words:
        if word.startswith("--"):
            pairs[word] = ""
        elif pairs:
            pairs[list(pairs)[-1]] = word
    return pairs


def port_of(values: dict[str, str]) -> int:
    return int(values.get("--bind", values.get("--metrics", "")).rpartition(":")[2])


def test_there_is_a_workload_for_each_role() -> None:
    units = (TREE / "deploy" / "systemd").glob("*.service")
    assert sorted(WORKLOADS) == ROLES
    assert {f"usher-{role}" for role in ROLES} == {unit.stem for unit in units} - {"usher-up"}


@each_role
def test_the_command_is_that_of_compose_and_of_the_unit(role: str) -> None:
    """Compose trusts its private network, here components have tokens and an address of their own."""
    command, *words = container(role)["args"]
    compose_command, *compose_words = COMPOSE[role]["command"]
    assert command == compose_command == role
    ours = {name: value for name, value in options(words).items() if name != "--host"}
    theirs = {name: value for name, value in options(compose_words).items() if name != "--insecure"}
    assert ours == theirs
    environment = (TREE / "deploy" / "systemd" / "usher.env").read_text()
    [unit_options] = re.findall(
        rf"^{role.upper().replace('-', '_')}_OPTIONS=(.*)$", environment, re.MULTILINE
    )
    unit = options(shlex.split(unit_options))
    assert unit.keys() == ours.keys()
    assert port_of(unit) == port_of(ours) == COMPOSE[role]["environment"]["HEALTH_PORT"]


@each_role
def test_the_options_exist(role: str) -> None:
    command = root.get_command(click.Context(root), role)
    assert command
    known = {name for param in command.params for name in param.opts}
    assert options(container(role)["args"]).keys() <= known


@each_role
def test_the_ports_and_probes_agree(role: str) -> None:
    found, port = container(role), port_of(options(container(role)["args"]))
    assert found["ports"] == [{"name": "http", "containerPort": port}]
    paths = {
        name: found[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")
    }
    alive, ready = {"path": "/healthz", "port": "http"}, READY.get(role, "/healthz")
    assert paths["startup"] == paths["liveness"] == alive
    assert paths["readiness"] == {"path": ready, "port": "http"}
    if role in SERVICES:
        [served] = SERVICES[role]["ports"]
        assert (served["port"], served["targetPort"]) == (port, "http")


@each_role
def test_the_settings_are_those_of_compose(role: str) -> None:
    given = {each["name"] for each in container(role)["env"]}
    wanted = set(COMPOSE[role]["environment"]) - {"HEALTH_PORT"}
    assert ("DATABASE_URL" in given) == ("DATABASE_URL" in wanted)
    assert wanted - {"DATABASE_URL"} <= set(CONFIG["data"])
    if "USHER_MGMT_URL" in wanted:
        assert CONFIG["data"]["USHER_MGMT_URL"] == COMPOSE[role]["environment"]["USHER_MGMT_URL"]
        assert {"POD_NAME", "USHER_TOKEN_FILE"} <= given
    assert container(role)["envFrom"] == [{"configMapRef": {"name": "usher"}}]


@each_role
def test_components_have_their_own_address_and_token(role: str) -> None:
    if "USHER_TOKEN_FILE" not in {each["name"] for each in container(role)["env"]}:
        return
    workload, given = WORKLOADS[role], options(container(role)["args"])
    assert workload["kind"] == "StatefulSet"
    assert workload["spec"]["serviceName"] == role
    assert SERVICES[role]["clusterIP"] == "None"
    if role != "manager":  # its name is that of the pod
        assert given["--host"] == f"$(POD_NAME).{role}:{port_of(given)}"
    mounts = {each["name"]: each for each in container(role)["volumeMounts"]}
    assert mounts["tokens"]["subPathExpr"] == "$(POD_NAME)"
    env = {each["name"]: each.get("value") for each in container(role)["env"]}
    assert env["USHER_TOKEN_FILE"] == mounts["tokens"]["mountPath"]


def hardened(spec: dict[str, Any]) -> None:
    uid = int(re.findall(r"--uid (\d+)", (TREE / "Containerfile").read_text())[0])
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": uid,
        "runAsGroup": uid,
        "fsGroup": uid,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert not spec["automountServiceAccountToken"]
    # Variables of services begin with their names, and Usher refuses unknown ones with its own.
    assert not spec["enableServiceLinks"]
    for each in spec["containers"]:
        assert each["securityContext"] == {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }


@each_role
def test_the_pods_are_as_closed_as_the_containers_of_compose(role: str) -> None:
    assert COMPOSE[role]["read_only"]
    assert COMPOSE[role]["cap_drop"] == ["ALL"]
    assert COMPOSE[role]["security_opt"] == ["no-new-privileges:true"]
    hardened(pod(role))


@each_role
def test_data_that_must_survive_has_a_claim(role: str) -> None:
    claims = WORKLOADS[role]["spec"].get("volumeClaimTemplates", [])
    assert bool(claims) == (role not in STATELESS)
    assert bool(COMPOSE[role].get("volumes")) == (role not in STATELESS or role == "mgmt")
    names = {each["metadata"]["name"] for each in claims} | {
        each["name"] for each in pod(role)["volumes"]
    }
    assert {each["name"] for each in container(role)["volumeMounts"]} == names


@each_role
def test_a_pod_has_as_much_time_to_end_as_a_unit(role: str) -> None:
    units = TREE / "deploy" / "systemd"
    own = units / f"usher-{role}.service.d"
    files = [*(units / "usher-.service.d").iterdir(), *(own.iterdir() if own.exists() else ())]
    times = re.findall(
        r"^TimeoutStopSec=(\d+)(min)?$", "\n".join(f.read_text() for f in files), re.MULTILINE
    )
    seconds = [int(number) * (60 if unit else 1) for number, unit in times]
    assert pod(role)["terminationGracePeriodSeconds"] >= seconds[-1]


def test_the_schema_is_migrated_as_in_compose() -> None:
    [job] = documents("Job")
    spec = job["spec"]["template"]["spec"]
    [only] = spec["containers"]
    assert only["args"] == COMPOSE["migrate"]["command"]
    assert [each["name"] for each in only["env"]] == ["DATABASE_URL"]
    hardened(spec)


def test_selectors_find_pods() -> None:
    labels = {
        role: each["spec"]["template"]["metadata"]["labels"] for role, each in WORKLOADS.items()
    }
    selectors = [each["spec"]["selector"]["matchLabels"] for each in WORKLOADS.values()]
    selectors += [each["selector"] for each in SERVICES.values()]
    budgets = list(documents("PodDisruptionBudget"))
    selectors += [each["spec"]["selector"]["matchLabels"] for each in budgets]
    for selector in selectors:
        [role] = [role for role, own in labels.items() if selector.items() <= own.items()]
        assert role
    assert {each["metadata"]["name"] for each in budgets} == set(ROLES) - {"watchdog", "scheduler"}


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")
def test_kubernetes_accepts_every_field(tmp_path: Path) -> None:
    """Kubernetes' own types decode the files strictly; a field that they do not have is refused."""
    program = tmp_path / "validate"
    build = subprocess.run(
        ["go", "build", "-mod=readonly", "-o", str(program), "."],
        cwd=VALIDATOR,
        env={**os.environ, "GOFLAGS": "-p=1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if "dial tcp" in build.stderr or "no such host" in build.stderr:
        pytest.skip("the modules of Kubernetes cannot be downloaded")
    assert build.returncode == 0, build.stderr
    done = subprocess.run([program, *FILES], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == len(LOADED)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(FILES[-1].read_text().replace("replicas:", "replicaz:"))
    refused = subprocess.run([program, wrong], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "replicaz" in refused.stderr
