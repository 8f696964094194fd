class RayActorError(Exception):
    pass


class GetTimeoutError(Exception):
    pass
