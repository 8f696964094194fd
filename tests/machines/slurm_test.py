#!/usr/bin/env python3
"""tools/slurm/tune.sh on a Slurm of one node, whose daemons run in this test's own folder: an array of two tasks and the merge
that depends on it; a task that is cancelled and submitted again. Needs root, slurmctld, slurmd, slurm-client and munge
(tools/install_dependencies.sh machines)."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time

from shards_of_a_recording import PROGRAM, QUICK, REPLAY, ROOT, ShardsOfARecording, main, run


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Slurm(ShardsOfARecording):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.daemons = []
        host = socket.gethostname().split(".")[0]
        for name in ("state", "spool", "munge"):
            (cls.folder / name).mkdir()
        (cls.folder / "munge").chmod(0o755)
        key = cls.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        (cls.folder / "slurm.conf").write_text(f"""
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={cls.folder}/munge/socket
CredType=cred/munge
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
StateSaveLocation={cls.folder}/state
SlurmdSpoolDir={cls.folder}/spool
SlurmctldPidFile={cls.folder}/slurmctld.pid
SlurmdPidFile={cls.folder}/slurmd.pid
SlurmctldLogFile={cls.folder}/slurmctld.log
SlurmdLogFile={cls.folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SchedulerParameters=sched_interval=1
MinJobAge=300
NodeName={host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""")
        cls.environment = {**os.environ, "SLURM_CONF": str(cls.folder / "slurm.conf")}
        munge = cls.folder / "munge"
        cls.start("munged", "--foreground", "--force", f"--socket={munge}/socket", f"--key-file={key}", f"--log-file={munge}/log",
                  f"--pid-file={munge}/pid", f"--seed-file={munge}/seed")
        cls.start("slurmctld", "-D", "-c")
        cls.start("slurmd", "-D")
        cls.wait_for(lambda: "idle" in cls.slurm("sinfo", "--noheader", "--format=%T").stdout, "an idle node")

    @classmethod
    def tearDownClass(cls):
        for daemon in reversed(cls.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in cls.daemons:
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
        super().tearDownClass()

    @classmethod
    def start(cls, name, *words):
        program = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
        assert program, f"{name} is not installed (tools/install_dependencies.sh machines)"
        with open(cls.folder / f"{name}.out", "w", encoding="utf-8") as log:
            cls.daemons.append(subprocess.Popen([program, *words], env=cls.environment, stdout=log, stderr=log))

    @classmethod
    def slurm(cls, *words, **more):
        return run(words, env={**cls.environment, **more})

    @classmethod
    def wait_for(cls, is_so, what, seconds=60):
        for _ in range(seconds * 5):
            if is_so():
                return
            time.sleep(0.2)
        logs = "".join(path.read_text(errors="replace")[-2000:] for path in cls.folder.glob("slurm*.log"))
        raise AssertionError(f"no {what} after {seconds} s\n{logs}")

    def tune(self, output, **more):
        done = self.slurm(ROOT / "tools" / "slurm" / "tune.sh", "2", self.file(output), *REPLAY, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split()[1].rstrip(",")

    def wait_for_jobs(self):
        self.wait_for(lambda: not self.slurm("squeue", "--noheader").stdout.strip(), "end of the jobs", 120)

    def log(self, name):
        path = self.file(name)
        return path.read_text() if path.is_file() else f"{name} is missing"

    def test_an_array_and_its_merge(self):
        self.tune("tuned.csv", GEMMTUNE=str(PROGRAM))
        self.wait_for_jobs()
        self.assertTrue(self.file("tuned.csv").is_file(), self.log("tuned.csv.0.log") + self.log("tuned.csv.merge.log"))
        self.expect_whole()
        for task in (0, 1):
            self.assertIn(f"shard {task + 1} of 2", self.log(f"tuned.csv.{task}.log"))

    def test_a_task_that_is_cancelled_is_submitted_again(self):
        array = self.tune("again.csv", GEMMTUNE=str(self.slow_program(3)))
        self.wait_for(lambda: f"{array}_1 R" in self.slurm("squeue", "--noheader", "--array", "--format=%i %t").stdout,
                      "running task")
        self.slurm("scancel", f"{array}_1")
        self.wait_for_jobs()
        self.assertFalse(self.file("again.csv").exists(), "the merge refuses")
        self.assertIn("1 shard missing: 2/2", self.log("again.csv.merge.log"))
        self.tune("again.csv", GEMMTUNE=str(PROGRAM))
        self.wait_for_jobs()
        self.expect_whole("again.csv")

    def test_every_operation(self):
        for operation, folder in self.each_operation():
            with self.subTest(operation):
                done = self.slurm(ROOT / "tools" / "slurm" / "tune.sh", "2", folder / "sl.csv", "-i", folder / "list.csv", "--op", operation, *QUICK,
                                  GEMMTUNE=str(PROGRAM), TMPDIR=str(folder))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.wait_for_jobs()
                self.expect_both_rows(folder / "sl.csv", self.log(f"{operation}/sl.csv.0.log") + self.log(f"{operation}/sl.csv.merge.log"))
                self.assertEqual(list(folder.glob("gemmtune-*")), [], "the journals' folders are removed")

    def test_tasks_of_one_job_are_shards(self):
        done = self.slurm("sbatch", "--wait", "--ntasks=2", "--overcommit", f"--output={self.file('tasks.log')}", "--wrap",
                          f"srun --overcommit {PROGRAM} tune {' '.join(REPLAY)} -o {self.file('tasks.csv')} --shard auto")
        self.assertEqual(done.returncode, 0, done.stderr + self.log("tasks.log"))
        merged = self.merge(2, "tasks")
        self.assertEqual(merged.returncode, 0, merged.stderr)
        self.expect_whole("tasks.csv")


if __name__ == "__main__":
    if os.getuid() != 0:
        sys.exit("slurm_test.py: needs root, as which the daemons run")
    main()
