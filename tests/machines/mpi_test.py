#!/usr/bin/env python3
"""`tune --shard auto` under mpirun: the ranks are the shards. Needs Open MPI (tools/install_dependencies.sh machines)."""

import os

from shards_of_a_recording import PROGRAM, REPLAY, ShardsOfARecording, main, run


class Mpi(ShardsOfARecording):
    def test_ranks_are_shards(self):
        mpirun = ["mpirun", "--oversubscribe", "-n", "2"] + (["--allow-run-as-root"] if os.getuid() == 0 else [])
        done = run([*mpirun, PROGRAM, "tune", *REPLAY, "-o", self.file("tuned.csv"), "--shard", "auto"])
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank in (1, 2):
            self.assertIn(f"shard {rank} of 2", done.stderr)
        merged = self.merge(2)
        self.assertEqual(merged.returncode, 0, merged.stderr)
        self.expect_whole()


if __name__ == "__main__":
    main()
