"""Applies policies: selects the policy for a queue or exchange, and combines it with the arguments.

`Definitions` and `VirtualHosts` call this only while they serve or begin to: a backup decides nothing.
Declarations stay unchanged, so comparisons, history and fingerprints ignore policies. If an argument and a
policy give the same value, RabbitMQ's rule applies (`rabbit_amqqueue_process:process_args_policy`): the
smaller number, else the argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from broker.model.patterns import Matching
from broker.model.policy import Policy
from broker.model.queue.arguments import QueueRules, rules_of, value_fault
from broker.model.queue.delays.delay_queue import is_internal
from broker.model.queue.origin import follows
from broker.model.queue.queue import Queue
from broker.model.routing.exchange import PEERS, Exchange
from broker.model.values import CONFIRM_LEVELS, Need
from broker.model.vhost.directory import Directory
from broker.model.vhost.policy_rules import ALTERNATE, CONFIRM, QUEUE_KEYS, merged, smaller
from broker.model.vhost.topology import Topology
from broker.model.vhost.windows import forget

Arguments = Mapping[str, object]
QUEUES, EXCHANGES = "queues", "exchanges"


# -- arguments combined with a policy


def rules_under(arguments: Arguments, definition: Arguments) -> QueueRules:
    """The rules of a queue with these arguments under this policy definition. Invalid values are ignored."""
    together = dict(arguments)
    for key, argument in QUEUE_KEYS.items():
        if key not in definition or value_fault(argument, asked := definition[key]) is not None:
            continue
        own = arguments.get(argument)
        if own is None or value_fault(argument, own) is not None:
            together[argument] = asked
        elif isinstance(own, int) and isinstance(asked, int):
            together[argument] = smaller(own, asked)
    rules = rules_of(together)
    level = confirm_of(definition)
    return rules if level is None else replace(rules, confirm=level)


def confirm_of(definition: Arguments) -> Need | None:
    """The confirm level of a policy definition; None if it has none."""
    level = definition.get(CONFIRM)
    return CONFIRM_LEVELS.get(level) if isinstance(level, str) else None


def weakest_confirm(directory: Directory) -> Need:
    """Of all policies, whatever queues they match."""
    levels = (confirm_of(policy.definition) for policy in directory.policies.values())
    return min((level for level in levels if level is not None), default=Need.DURABLE)


def alternate_under(arguments: Arguments, definition: Arguments) -> str | None:
    """The alternate exchange under these arguments and this policy definition."""
    for table in (arguments, definition):
        name = table.get(ALTERNATE)
        if isinstance(name, str):
            return name
    return None


# -- applying policies


def apply_to_all(host: Topology) -> None:
    """Apply the current policies to all queues and exchanges. Cheap where the policy is unchanged."""
    matching = Matching()
    plain: dict[tuple[str, str], QueueRules] = {}
    directory = host.shared.directory
    of_queues = directory.ranked(host.name, QUEUES)
    of_operators = directory.ranked(host.name, QUEUES, by_operator=True)
    changed = False
    for queue in host.queues.values():
        policies = _policy_of(queue, of_queues, matching), _policy_of(queue, of_operators, matching)
        if policies[0] is not queue.ruled_by or policies[1] is not queue.operated_by:
            changed |= _set_queue_policy(host, queue, policies, plain)
    of_exchanges = directory.ranked(host.name, EXCHANGES)
    for exchange in host.exchanges.values():
        changed |= _set_exchange_policy(exchange, _first_match(of_exchanges, exchange.name, matching))
    if changed:
        host._changed()
    _warn_of(host, {policy.name: policy for policy in (*of_queues, *of_exchanges)}, "policy", matching)
    _warn_of(host, {policy.name: policy for policy in of_operators}, "operator policy", matching)


def _warn_of(host: Topology, policies: Mapping[str, Policy], kind: str, matching: Matching) -> None:
    for policy in policies.values():
        names = matching.given_up.get(policy.pattern)
        if names is not None:
            host.shared.warn(
                f"{kind} '{policy.name}' in vhost '{host.name}': its pattern reached the match limit for "
                f"{len(names)} names, such as '{min(names)}', and does not match them; set a simpler pattern"
            )


def apply_to_new(host: Topology, made: Queue | Exchange) -> None:
    """Apply the policies to a new queue or exchange of a serving virtual host. No route leads to it yet."""
    if isinstance(made, Queue):
        if is_internal(made.name):
            return
        directory = host.shared.directory
        policy = directory.policy_for(host.name, made.name, QUEUES)
        by_operator = directory.policy_for(host.name, made.name, QUEUES, by_operator=True)
        if policy is not None or by_operator is not None:
            _set_queue_policy(host, made, (policy, by_operator), {})
    else:
        _set_exchange_policy(made, host.shared.directory.policy_for(host.name, made.name, EXCHANGES))


def policy_names(directory: Directory, queues: Sequence[Queue]) -> dict[Queue, str]:
    """The policy name of each of these queues that has one. On a backup: the policy that would apply."""
    ranked = {name: directory.ranked(name, QUEUES) for name in {queue.vhost for queue in queues}}
    matching = Matching()
    found = {queue: _policy_of(queue, ranked[queue.vhost], matching) for queue in queues}
    return {queue: policy.name for queue, policy in found.items() if policy is not None}


def _policy_of(queue: Queue, ranked: Sequence[Policy], matching: Matching) -> Policy | None:
    """The broker's own queues have none: the limits of a link queue are its agent's."""
    return None if is_internal(queue.name) else _first_match(ranked, queue.name, matching)


def _first_match(ranked: Sequence[Policy], name: str, matching: Matching) -> Policy | None:
    for policy in ranked:
        if matching.matches(policy.pattern, name):
            return policy
    return None


def definition_of(policy: Policy | None, by_operator: Policy | None) -> Arguments:
    """The definition in force: of a policy and an operator policy together."""
    definition: Arguments = {} if policy is None else policy.definition
    return definition if by_operator is None else merged(definition, by_operator.definition)


def _set_queue_policy(
    host: Topology,
    queue: Queue,
    policies: tuple[Policy | None, Policy | None],
    plain: dict[tuple[str, str], QueueRules],
) -> bool:
    """Set a queue's policy and operator policy. Returns whether its rules changed. `plain`: rules of queues
    without arguments, by the names of both.

    If the expiry changed, the time without use begins again (as in RabbitMQ).
    """
    policy, by_operator = queue.ruled_by, queue.operated_by = policies
    names = "" if policy is None else policy.name, "" if by_operator is None else by_operator.name
    if queue.arguments:
        rules = rules_under(queue.arguments, definition_of(policy, by_operator))
    elif (known := plain.get(names)) is not None:
        rules = known
    else:
        rules = plain[names] = rules_under({}, definition_of(policy, by_operator))
    before = queue.rules
    if rules == before:
        return False
    queue.set_rules(rules)
    if rules.dedup is None and host.shared.serving:
        forget(queue, host.shared.history)
    if rules.expires != before.expires and host.shared.serving and not follows(queue):
        host.shared.expiries.forget(queue)
        host.shared.expiries.used(queue)
    return True


def _set_exchange_policy(exchange: Exchange, policy: Policy | None) -> bool:
    """Set an exchange's policy. Returns whether its alternate exchange changed. The default exchange and
    that between the nodes of a pair never have one."""
    exchange.ruled_by = policy
    if not exchange.name or exchange.name == PEERS:
        return False
    before = exchange.alternate
    exchange.alternate = alternate_under(exchange.arguments, {} if policy is None else policy.definition)
    return exchange.alternate != before
