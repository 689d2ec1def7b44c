"""Network policies: each connection is allowed on both sides."""

from tests.k8s.cluster import COMPONENT, Cluster, Pod

INTERNET = "0.0.0.0/0"
# From, to, port. Everything else is refused.
WANTED = {
    ("judge", "sandbox", 8080),
    ("reward", "sandbox", 8080),
    ("judge", "redis", 6379),
    ("aggregator", "redis", 6379),
    ("runner", "redis", 6379),
    ("reward", "redis", 6379),
    ("trainer", "reward", 8090),
    ("runner", "generator", 8000),
    ("page", "aggregator", 8081),
    ("ray", "ray", None),
    ("ray", "generator", None),
    ("generator", "ray", None),
    ("monitoring", "judge", 8082),
    ("monitoring", "aggregator", 8081),
    ("monitoring", "generator", 8000),
    ("monitoring", "reward", 8090),
    ("keda", "redis", 6379),
    ("anybody", "page", 8080),
    ("aggregator", INTERNET, 443),
    ("generator", INTERNET, 443),
    ("ray", INTERNET, 443),
    ("data", INTERNET, 443),
}


def _sides(cluster: Cluster, pod: Pod, direction: str) -> set[tuple[str, int | None]] | None:
    """Who is let in or out, by component or namespace, with the port; None: no policy at all."""
    sides: set[tuple[str, int | None]] = set()
    policies = [p for p in cluster.of("NetworkPolicy") if pod.matches(p["spec"]["podSelector"])]
    policies = [p for p in policies if direction in p["spec"]["policyTypes"]]
    for policy in policies:
        for rule in policy["spec"].get(direction.lower(), []):
            peers = rule.get("to" if direction == "Egress" else "from", [{}])
            ports = [port["port"] for port in rule.get("ports", [{"port": None}])]
            sides |= {(_peer(peer), port) for peer in peers for port in ports}
    return sides if policies else None


def _peer(peer: dict) -> str:
    if "ipBlock" in peer:
        return peer["ipBlock"]["cidr"]
    if "podSelector" in peer:
        return peer["podSelector"]["matchLabels"][COMPONENT]
    if "namespaceSelector" in peer:
        return peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
    return "anybody"


def reachable(cluster: Cluster) -> set[tuple[str, str, int | None]]:
    """All connections that both sides let through."""
    outs = {pod.component: _sides(cluster, pod, "Egress") for pod in cluster.pods}
    ins = {pod.component: _sides(cluster, pod, "Ingress") for pod in cluster.pods}
    if None in outs.values() or None in ins.values():
        return {("anybody", "anybody", None)}
    connections = set()
    for source, allowed in outs.items():
        for to, port in allowed or ():
            if to in (INTERNET, "anybody") or (source, port) in (ins.get(to) or ()):
                connections.add((source, to, port))
    for to, allowed in ins.items():
        connections |= {(who, to, port) for who, port in allowed or () if who not in outs}
    return connections


def test_only_what_must_be_reaches_one_another(everything: Cluster):
    assert reachable(everything) == WANTED


def test_the_sandbox_reaches_nobody(clusters: dict[str, Cluster]):
    reached = {
        name: _sides(cluster, cluster.pod("sandbox"), "Egress")
        for name, cluster in clusters.items()
        if cluster.of("NetworkPolicy")
    }
    assert reached == {name: set() for name in reached}
    assert reached
