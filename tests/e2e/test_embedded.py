"""The embedded server's life: shared, left, killed, broken. Every process here is real."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from support.db.fixtures import DEBIAN, open_directory, wait_stopped
from support.processes.free_port import free_port
from support.processes.killable import (
    LEASE_HOLDER_CODE,
    LeaseHolder,
    eventually,
    kill_9,
    lease_holders,
    running,
    supervisor_pids,
)
from usher.db.embedded import account
from usher.db.embedded.account_files import give_directory
from usher.db.embedded.binaries import find_binaries
from usher.db.embedded.server_lease import lease_server
from usher.db.embedded.supervisor import copy_binaries
from usher.errors import DataUnusable, NoServer, ServerUnusable, WrongVersion

pytestmark = pytest.mark.soak

ROOT = os.geteuid() == 0


def write(dsn: str, number: int) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute("create table if not exists kept (number int)")
        conn.execute("insert into kept values (%s)", [number])


def numbers(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as conn:
        return [number for (number,) in conn.execute("select number from kept order by number")]


def answers(dsn: str) -> bool:
    with psycopg.connect(dsn) as conn:
        return conn.execute("select 1").fetchone() == (1,)


def test_lease_holders_share_one_server_and_the_end_of_the_last_stops_it(data: Path) -> None:
    with lease_holders(data, 3) as here:
        postmaster = here[0].postmaster
        assert {holder.postmaster for holder in here} == {postmaster}
        assert len(supervisor_pids(data)) == 1
        assert here[0].stop() == 0
        here[1].kill()
        assert running(postmaster)
        assert here[2].stop() == 0
        assert eventually(lambda: not running(postmaster))
    assert eventually(lambda: not supervisor_pids(data))
    assert not (data / "postgres" / "postmaster.pid").exists()


def test_eight_first_starts_at_once_make_one_server(data: Path) -> None:
    command = [sys.executable, "-c", LEASE_HOLDER_CODE, str(data), ""]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    try:
        pids = {process.stdout.readline() for process in started if process.stdout}
        assert len(pids) == 1
        assert pids != {""}
    finally:
        for process in started:
            process.communicate("\n", timeout=30)


def test_killing_every_lease_holder_stops_the_server(data: Path) -> None:
    with lease_holders(data, 2) as here:
        postmaster = here[0].postmaster
        for holder in here:
            holder.kill()
        assert eventually(lambda: not running(postmaster))
    with lease_server(data) as lease:
        assert lease.cluster.ready()


def test_a_killed_postmaster_comes_back_with_everything_committed(data: Path) -> None:
    with lease_server(data) as lease:
        write(lease.dsn, 1)
        before = lease.cluster.pid()
        kill_9(before)
        assert eventually(lambda: lease.cluster.ready() and lease.cluster.pid() != before)
        write(lease.dsn, 2)
        assert numbers(lease.dsn) == [1, 2]


def test_a_killed_supervisor_leaves_the_server_running_and_the_next_lease_starts_another(
    data: Path,
) -> None:
    with lease_server(data) as lease:
        write(lease.dsn, 1)
        postmaster = lease.cluster.pid()
        kill_9(supervisor_pids(data)[0])
        assert numbers(lease.dsn) == [1]
        with lease_holders(data, 1) as here:
            assert here[0].postmaster == postmaster
            assert len(supervisor_pids(data)) == 1
            assert here[0].stop() == 0
        assert running(postmaster)
        # The new supervisor did not start this server, and still restarts it.
        kill_9(postmaster)
        assert eventually(lambda: lease.cluster.ready() and lease.cluster.pid() != postmaster)
        assert numbers(lease.dsn) == [1]
        postmaster = lease.cluster.pid()
    assert eventually(lambda: not running(postmaster))


def test_everything_killed_at_once(data: Path) -> None:
    with lease_holders(data, 1) as here:
        lease = lease_server(data)
        write(lease.dsn, 1)
        dsn = lease.dsn
        for pid in (*supervisor_pids(data), here[0].postmaster):
            kill_9(pid)
        here[0].kill()
        lease.release()
    with lease_server(data) as lease:
        assert numbers(dsn) == [1]


def test_a_supervisor_that_gets_term_stops_the_server_cleanly(data: Path) -> None:
    with lease_holders(data, 1) as here:
        os.kill(supervisor_pids(data)[0], signal.SIGTERM)
        assert eventually(lambda: not running(here[0].postmaster))
        assert eventually(lambda: not supervisor_pids(data))
        log = "".join(path.read_text() for path in (data / "log").glob("postgres-*.log"))
        assert "database system is shut down" in log


def test_a_pid_file_whose_number_a_stranger_has(data: Path) -> None:
    with lease_server(data):
        pass
    wait_stopped(data)
    pid_file = data / "postgres" / "postmaster.pid"
    # Of a living process of the same user, else PostgreSQL itself would see through it.
    user = account.server_account()
    stranger = user.popen(["/bin/sleep", "60"])
    try:
        text = f"{stranger.pid}\n{data}/postgres\n0\n5432\n{data}/run\n\n 0 0\nready   \n"
        assert user.write(pid_file, text) == (0, "")
        with lease_server(data) as lease:
            assert lease.cluster.pid() != stranger.pid
    finally:
        stranger.kill()
        stranger.wait()


def test_tcp_wants_the_password_and_the_socket_does_not(data: Path) -> None:
    port = free_port()
    with lease_server(data, port=port) as lease:
        where = f"host=127.0.0.1 port={port} user=usher dbname=usher sslmode=disable"
        password = (data / "password").read_text().strip()
        with psycopg.connect(where, password=password) as conn:
            assert conn.execute("select 1").fetchone() == (1,)
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(where, password="wrong")
        assert answers(lease.dsn)
        assert (data / "password").stat().st_mode & 0o777 == 0o600


def test_without_a_port_nothing_listens_on_tcp(data: Path) -> None:
    with lease_server(data) as lease, psycopg.connect(lease.dsn) as conn:
        assert conn.execute("show listen_addresses").fetchone() == ("",)


def test_the_socket_is_closed_to_others(data: Path) -> None:
    with lease_server(data) as lease:
        assert lease.cluster.sockets.stat().st_mode & 0o077 == 0
        assert lease.cluster.pgdata.stat().st_mode & 0o077 == 0


def test_a_path_too_long_for_a_socket(data: Path) -> None:
    deep = data / ("d" * 60) / ("e" * 60)
    with lease_server(deep) as lease:
        assert not lease.cluster.sockets.is_relative_to(deep)
        assert answers(lease.dsn)
        sockets = lease.cluster.sockets
    wait_stopped(deep)
    shutil.rmtree(sockets)


@pytest.mark.debian
@pytest.mark.skipif(not DEBIAN.exists(), reason="Debian's PostgreSQL 15 is not installed")
def test_another_major_version_is_refused_and_nothing_is_touched(data: Path) -> None:
    with lease_server(data, pg_bin=str(DEBIAN)) as lease:
        write(lease.dsn, 1)
    wait_stopped(data)
    with pytest.raises(WrongVersion, match=r"created by PostgreSQL 15.*are 18") as caught:
        lease_server(data)
    assert "usher db dump" in caught.value.hint
    with lease_server(data, pg_bin=str(DEBIAN)) as lease:
        assert numbers(lease.dsn) == [1]


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_programs_that_are_not_there(data: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoServer, match="holds no initdb"):
        lease_server(data, pg_bin=str(tmp_path / name))


def test_a_data_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DataUnusable, match="cannot be used"):
        lease_server(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_data_directory_with_something_else_in_it(data: Path) -> None:
    data.mkdir(mode=0o711)
    give_directory(data / "postgres", account.server_account())
    (data / "postgres" / "mine").write_text("mine")
    with pytest.raises(DataUnusable, match="not a PostgreSQL data directory"):
        lease_server(data)
    assert (data / "postgres" / "mine").read_text() == "mine"


def test_initdb_killed_halfway_leaves_nothing_in_the_way(data: Path) -> None:
    (data / "postgres.new" / "base").mkdir(parents=True)
    with lease_server(data) as lease:
        assert lease.cluster.ready()
    assert not (data / "postgres.new").exists()


@pytest.mark.skipif(ROOT, reason="root may write anywhere")
def test_a_read_only_directory(data: Path) -> None:
    data.mkdir(mode=0o500)
    with pytest.raises(DataUnusable, match="Permission denied"):
        lease_server(data)


@pytest.mark.skipif(not ROOT, reason="needs root to make a small or read-only file system")
def test_a_full_disk_and_a_read_only_one(data: Path) -> None:
    data.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m,mode=711", "usher", data], check=False
    ).returncode:
        pytest.skip("this machine does not allow mounts")
    try:
        with pytest.raises(DataUnusable, match="No space left") as caught:
            lease_server(data)
        assert "free space" in caught.value.hint
        assert {path.name for path in data.iterdir()}.isdisjoint({"postgres", "postgres.new"})
        subprocess.run(["mount", "-o", "remount,ro", data], check=True)
        with pytest.raises(DataUnusable, match="Read-only file system"):
            lease_server(data)
    finally:
        subprocess.run(["umount", data], check=True)


@pytest.mark.skipif(not ROOT, reason="only root drops to another user")
def test_root_drops_to_a_user_who_must_reach_the_directory() -> None:
    private = open_directory()
    private.chmod(0o700)
    try:
        with pytest.raises(DataUnusable, match="cannot reach") as caught:
            lease_server(private / "data")
        assert "--data" in caught.value.hint
        assert not (private / "data").exists()
    finally:
        shutil.rmtree(private)


@pytest.mark.skipif(not ROOT, reason="only root drops to another user")
def test_programs_in_a_private_home_are_copied_for_that_user(data: Path) -> None:
    with lease_server(data) as lease:
        programs = lease.cluster.binaries.directory
    wait_stopped(data)
    private = open_directory()
    shutil.copytree(programs.parent, private / "pg", symlinks=True)
    private.chmod(0o700)
    try:
        with lease_server(data, pg_bin=str(private / "pg" / "bin")) as lease:
            assert lease.cluster.ready()
            home = Path(f"/proc/{lease.cluster.pid()}/exe").readlink()
            assert home.is_relative_to(data)
            owner = Path(f"/proc/{lease.cluster.pid()}").stat().st_uid
            assert owner == lease.cluster.account.uid != 0
    finally:
        shutil.rmtree(private)


def test_a_configuration_that_does_not_start_is_told_and_mended(data: Path) -> None:
    with lease_server(data):
        pass
    wait_stopped(data)
    own = data / "postgres" / "postgresql.auto.conf"
    good = own.read_text()
    own.write_text("shared_buffers = 'nonsense'\n")
    with pytest.raises(ServerUnusable, match="nonsense"):
        lease_server(data)
    own.write_text(good)
    with lease_server(data) as lease:
        assert lease.cluster.ready()


def test_a_guest_that_comes_while_the_server_stops_gets_a_new_one(data: Path) -> None:
    for _ in range(5):
        holder = LeaseHolder(data)
        holder.process.kill()
        with lease_server(data) as lease:
            assert answers(lease.dsn)
        holder.kill()


@pytest.mark.skipif(not ROOT, reason="only root makes users")
def test_root_makes_the_user_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "ACCOUNT_NAME", f"usher-{os.getpid()}")
    try:
        assert account.create_account().uid != 0
        assert account.create_account() == account.account_named(account.ACCOUNT_NAME)
    finally:
        subprocess.run(["userdel", account.ACCOUNT_NAME], check=True)


@pytest.mark.skipif(not ROOT, reason="only root makes users")
def test_processes_that_start_together_on_a_new_machine_get_one_user(tmp_path: Path) -> None:
    """Two runs of useradd together replaced the user by one with another id; a server then never became ready."""
    without_user = f"""
        set -e
        cp -a /etc {tmp_path}/etc
        sed -i /^{account.ACCOUNT_NAME}:/d {tmp_path}/etc/passwd {tmp_path}/etc/group
        rm -f {tmp_path}/etc/shadow {tmp_path}/etc/gshadow
        mount --bind {tmp_path}/etc /etc
        for number in 1 2 3 4 5 6; do "$0" -c "$1" & done
        wait
    """
    program = (
        "import os\n"
        "from usher.db.embedded import account\n"
        "os.write(1, f'{account.server_account().uid}\\n'.encode())"  # in one piece
    )
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", without_user, sys.executable, program],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare failed" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr.strip()}")
    assert (len(done.stdout.split()), len(set(done.stdout.split()))) == (6, 1), done.stderr


def test_a_copy_of_the_programs_has_their_libraries(tmp_path: Path) -> None:
    """As root, the programs of an installation in a private home are copied to where their user can run them."""
    copy = tmp_path / "postgresql"
    (copy / "bin").mkdir(parents=True)  # an incomplete copy of an earlier version
    programs = copy_binaries(find_binaries(""), copy)
    assert programs.directory.is_relative_to(copy)
    command = [str(programs.directory / "initdb"), "--version"]
    done = subprocess.run(command, env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
