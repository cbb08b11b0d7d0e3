"""The database account attacks root through the files, links and process ids that it can plant.

The attacker is the real account that runs PostgreSQL, or another local user; root is this test.
"""

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from support.db.fixtures import open_directory, wait_stopped
from support.processes.killable import LeaseHolder, eventually, running
from support.processes.terminal import show
from usher.db.embedded import account, account_files
from usher.db.embedded.account import ServerAccount
from usher.db.embedded.server_lease import lease_server
from usher.errors import DataUnusable
from usher.local.roles import ROLE_PROCESSES

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has an account to fear")
OTHER_USER = ServerAccount("nobody", 65534, 65534)
SECRET = "the content of a file of root"


@pytest.fixture
def database_user() -> ServerAccount:
    return account.server_account()


@pytest.fixture
def victim() -> Iterator[Path]:
    """A directory of root with a secret file, in a place that others can reach but not change."""
    home = open_directory()
    (home / "etc").mkdir(mode=0o755)
    (home / "etc" / "shadow").write_text(SECRET)
    (home / "etc" / "shadow").chmod(0o600)
    yield home / "etc"
    shutil.rmtree(home)


def is_unchanged(victim: Path) -> bool:
    file, directory = (victim / "shadow").stat(), victim.stat()
    return (
        (victim / "shadow").read_text() == SECRET
        and [path.name for path in victim.iterdir()] == ["shadow"]
        and (file.st_uid, stat.S_IMODE(file.st_mode)) == (0, 0o600)
        and (directory.st_uid, stat.S_IMODE(directory.st_mode)) == (0, 0o755)
    )


def shell(attacker: ServerAccount, script: str, *words: object) -> int:
    return attacker.run(["/bin/sh", "-c", script, "sh", *map(str, words)])[0]


def plant(attacker: ServerAccount, link: Path, target: Path) -> None:
    assert shell(attacker, 'rm -f "$2" && ln -s "$1" "$2"', target, link) == 0


def make_server(data: Path) -> None:
    with lease_server(data):
        pass
    wait_stopped(data)


def answers(dsn: str) -> bool:
    with psycopg.connect(dsn) as conn:
        return conn.execute("select 1").fetchone() == (1,)


@pytest.mark.attack(
    4, "plants usher.conf as a link to root's file", "file unchanged, start refused"
)
def test_usher_conf_is_a_link(data: Path, victim: Path, database_user: ServerAccount) -> None:
    make_server(data)
    plant(database_user, data / "postgres" / "usher.conf", victim / "shadow")
    with pytest.raises(DataUnusable, match="Permission denied"):
        lease_server(data)
    assert is_unchanged(victim)


@pytest.mark.attack(
    4, "plants start.log and role logs as links", "root logs in a directory of its own"
)
def test_log_files_are_links(data: Path, victim: Path, database_user: ServerAccount) -> None:
    make_server(data)
    for name in ("start", *ROLE_PROCESSES):
        plant(database_user, data / "log" / f"{name}.log", victim / "shadow")
    with show(data, "up") as usher:
        usher.is_up()
        usher.ctrl_c()
        assert usher.ends() == 0
    assert is_unchanged(victim)
    logs = {path.name for path in (data / "logs").iterdir()}
    assert logs == {f"{name}.log" for name in ("start", *ROLE_PROCESSES)}
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (data / "logs").iterdir()}
    assert (stat.S_IMODE((data / "logs").stat().st_mode), modes) == (0o700, {0o600})
    assert shell(database_user, 'ls "$1"', data / "logs") != 0


@pytest.mark.attack(
    4, "owns the data directory, plants `log` as a link", "root refuses the directory"
)
def test_the_data_directory_is_the_attackers(
    data: Path, victim: Path, database_user: ServerAccount
) -> None:
    data.mkdir(mode=0o711)
    os.chown(data, database_user.uid, database_user.gid)
    plant(database_user, data / "log", victim)
    with pytest.raises(DataUnusable, match="can write in") as caught:
        lease_server(data)
    assert "chown root" in caught.value.hint
    assert is_unchanged(victim)


def test_the_account_cannot_change_the_data_directory(
    data: Path, database_user: ServerAccount
) -> None:
    make_server(data)
    assert shell(database_user, 'mv "$1/log" "$1/other"', data) != 0
    assert shell(database_user, 'ln -s /etc "$1/link"', data) != 0
    assert shell(database_user, 'cat "$1/password"', data) != 0
    password = (data / "password").stat()
    assert (password.st_uid, stat.S_IMODE(password.st_mode)) == (0, 0o600)


@pytest.mark.parametrize("name", ["log", "run", "postgres", "postgres.new"])
def test_no_directory_is_reached_through_a_link(data: Path, victim: Path, name: str) -> None:
    data.mkdir(mode=0o711)
    (data / name).symlink_to(victim)
    with pytest.raises(DataUnusable, match=r"is a symlink|not a directory"):
        lease_server(data)
    assert is_unchanged(victim)


@pytest.mark.attack(
    4, "links PG_VERSION to a secret of root", "the error does not repeat the secret"
)
def test_pg_version_is_a_link(data: Path, victim: Path, database_user: ServerAccount) -> None:
    make_server(data)
    plant(database_user, data / "postgres" / "PG_VERSION", victim / "shadow")
    with pytest.raises(DataUnusable, match="not a PostgreSQL data directory") as caught:
        lease_server(data)
    assert SECRET not in caught.value.message


@contextmanager
def victim_process(directory: Path, cwd: Path) -> Iterator[int]:
    """A process of root that looks like a postmaster of this directory."""
    program = directory / "postgres"
    shutil.copyfile("/bin/sleep", program)
    program.chmod(0o755)
    process = subprocess.Popen([program, "600"], cwd=cwd)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def plant_pid(attacker: ServerAccount, data: Path, pid: int) -> None:
    lines = [pid, data / "postgres", 0, 5432, data / "run", "", "0 0", "ready"]
    text = "".join(f"{line}\n" for line in lines)
    assert attacker.write(data / "postgres" / "postmaster.pid", text) == (0, "")


@pytest.mark.attack(
    4, "writes root's pid into postmaster.pid before the stop", "only the postmaster ends"
)
def test_the_pid_file_of_a_running_server(
    data: Path, tmp_path: Path, database_user: ServerAccount
) -> None:
    holder = LeaseHolder(data)
    with victim_process(tmp_path, data / "postgres") as pid:
        plant_pid(database_user, data, pid)
        assert holder.stop() == 0
        assert eventually(lambda: not running(holder.postmaster))
        assert running(pid)


@pytest.mark.attack(
    4, "leaves postmaster.pid with a pid of root's", "a new server starts, the process lives"
)
def test_the_pid_file_of_a_stopped_server(
    data: Path, tmp_path: Path, database_user: ServerAccount
) -> None:
    make_server(data)
    with victim_process(tmp_path, data / "postgres") as pid:
        plant_pid(database_user, data, pid)
        with lease_server(data) as lease:
            assert lease.cluster.pid() != pid
            assert answers(lease.dsn)
            postmaster = lease.cluster.pid()
        assert eventually(lambda: not running(postmaster))
        assert running(pid)


def test_a_signal_of_the_account_does_not_reach_root(
    tmp_path: Path, database_user: ServerAccount
) -> None:
    with victim_process(tmp_path, tmp_path) as pid:
        database_user.signal(pid, signal.SIGKILL)
        assert running(pid)


def squatted(data: Path) -> Path:
    """The name in the temporary directory that anyone can compute for a long data directory."""
    name = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"usher-{name}")


@pytest.mark.attack(
    4, "takes the socket's name in /tmp with a link first", "the socket is elsewhere"
)
def test_the_socket_directory_is_squatted(data: Path, victim: Path) -> None:
    deep = data / ("d" * 60) / ("e" * 60)
    plant(OTHER_USER, squatted(deep), victim)
    sockets: Path | None = None
    try:
        with lease_server(deep) as lease:
            sockets = lease.cluster.sockets
            assert answers(lease.dsn)
            assert not sockets.is_relative_to(tempfile.gettempdir())
            assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert is_unchanged(victim)
    finally:
        wait_stopped(deep)
        squatted(deep).unlink()
        if sockets is not None:
            shutil.rmtree(sockets)


PYTHON = "/usr/bin/python3"  # of the system: the one that runs the tests may be in a private home
MAKE_SOCKET_DIRECTORY = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from usher.db.embedded.account import server_account
from usher.db.embedded.account_files import give_directory
from usher.db.embedded.cluster import socket_directory
give_directory(socket_directory(Path(sys.argv[2])), server_account())
"""


@pytest.mark.attack(
    4, "takes a normal user's socket directory in /tmp", "clear error, nothing used"
)
def test_the_socket_directory_of_a_normal_user_is_squatted(data: Path) -> None:
    deep = data / ("d" * 60) / ("e" * 60)
    source = Path(account.__file__).parents[3]
    command = [PYTHON, "-c", MAKE_SOCKET_DIRECTORY, str(source), str(deep)]
    if not Path(PYTHON).exists() or not OTHER_USER.may_enter(source):
        pytest.skip("no Python or checkout here that is open to other users")
    squatted(deep).mkdir(mode=0o777)  # of root, who is another user here
    try:
        code, said = OTHER_USER.run(command)
        assert code
        assert f"{squatted(deep)} belongs to another user" in said
    finally:
        squatted(deep).rmdir()
    try:
        assert OTHER_USER.run(command) == (0, "")
        assert stat.S_IMODE(squatted(deep).stat().st_mode) == 0o700
    finally:
        squatted(deep).rmdir()


@pytest.mark.attack(
    4, "gives its data directory to another user", "root does not run programs as that user"
)
def test_the_owner_of_a_directory_decides_nothing(data: Path, database_user: ServerAccount) -> None:
    make_server(data)
    subprocess.run(
        ["chown", "-hR", f"{OTHER_USER.uid}:{OTHER_USER.gid}", data / "postgres"], check=True
    )
    with pytest.raises(DataUnusable, match=f"belongs to user id {OTHER_USER.uid}") as caught:
        lease_server(data)
    assert f"chown -hR {database_user.name}:" in caught.value.hint


def test_the_account_is_dedicated(database_user: ServerAccount) -> None:
    assert database_user.name == "usher"
    assert database_user.uid not in {0, OTHER_USER.uid}


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "file of root"])
def test_root_reads_only_regular_files_of_the_account(
    data: Path, victim: Path, database_user: ServerAccount, kind: str
) -> None:
    data.mkdir(mode=0o711)
    account_files.give_directory(data / "own", database_user)
    file = data / "own" / "file"
    if kind == "file of root":
        file.write_text(SECRET)
    else:
        make = {"link": 'ln -s "$1" "$2"', "fifo": 'mkfifo "$2"', "directory": 'mkdir "$2"'}
        assert shell(database_user, make[kind], victim / "shadow", file) == 0
    with account_files.open_directory(data / "own") as handle, pytest.raises(OSError, match=r".+"):
        account_files.read_file(handle, "file", database_user)
    with suppress(IsADirectoryError):
        file.unlink()
    assert database_user.write(data / "own" / "good", "text") == (0, "")
    assert account_files.read_file_or_empty(data / "own", "good", database_user) == "text"
