"""A double of Ray on this machine: as much as gemmtune.ray uses. Each actor runs its calls on a thread of its own."""

from concurrent import futures

from . import exceptions


def init(**_):
    pass


def shutdown():
    pass


def cluster_resources():
    return {"CPU": 2}


def put(value):
    return value


class _Method:
    def __init__(self, actor, name):
        self.actor, self.name = actor, name

    def remote(self, *arguments):
        return self.actor.thread.submit(getattr(self.actor.value, self.name), *arguments)


class _Actor:
    def __init__(self, value):
        self.value = value
        self.thread = futures.ThreadPoolExecutor(1)

    def __getattr__(self, name):
        return _Method(self, name)


class _Class:
    def __init__(self, made):
        self.made = made

    def remote(self, *arguments):
        return _Actor(self.made(*arguments))


def remote(**_):
    return _Class


def get(result, timeout=None):
    try:
        return result.result(timeout)
    except futures.CancelledError as error:
        raise exceptions.RayActorError(str(error)) from None


def wait(results, num_returns=1, timeout=None):
    done, _ = futures.wait(results, timeout, futures.FIRST_COMPLETED)
    ready = [one for one in results if one in done][:num_returns]
    return ready, [one for one in results if one not in ready]


def kill(actor):
    actor.thread.shutdown(wait=False, cancel_futures=True)
