#!/usr/bin/python3
"""The commands of tools/kubernetes/*.yaml, run here as the pods of an indexed Job would. Needs yaml (python3-yaml)."""

import os

import yaml

from shards_of_a_recording import PROGRAM, REPLAY, ROOT, ShardsOfARecording, main, run


class Kubernetes(ShardsOfARecording):
    def container(self, name):
        job = yaml.safe_load((ROOT / "tools" / "kubernetes" / name).read_text())
        self.assertEqual((job["apiVersion"], job["kind"]), ("batch/v1", "Job"))
        return job["spec"], job["spec"]["template"]["spec"]["containers"][0]

    def words(self, container):
        words = [*container["command"], *container.get("args", [])]
        return [word.replace("/data/", f"{self.folder}/").replace("/local", str(self.folder / "local"))
                .replace(f"-i {self.folder}/shapes.csv", " ".join(REPLAY)) for word in words if word != "--confirm"]

    def test_pods_are_shards(self):
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / "gemmtune").symlink_to(PROGRAM)
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        spec, container = self.container("tune.yaml")
        self.assertEqual(spec["completionMode"], "Indexed")
        self.assertIn(f"auto/{spec['completions']}", container["args"][0])
        for index in range(spec["completions"]):
            pod = run(self.words(container), env={**environment, "JOB_COMPLETION_INDEX": str(index)})
            self.assertEqual(pod.returncode, 0, pod.stderr)
        _, container = self.container("merge.yaml")
        merged = run(self.words(container), env=environment)
        self.assertEqual(merged.returncode, 0, merged.stderr)
        self.expect_whole()
        wrong = run([word.replace("-o ", "--nonsense -o ") for word in self.words(self.container("tune.yaml")[1])],
                    env={**environment, "JOB_COMPLETION_INDEX": "0"})
        self.assertEqual(wrong.returncode, 2, "which ends the index")


if __name__ == "__main__":
    main()
