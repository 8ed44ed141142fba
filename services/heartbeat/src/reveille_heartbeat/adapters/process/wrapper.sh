# Stands between the service and one agent, in a session of its own, and outlives the service.
#
# Called as: sh -c THIS reveille-agent SPOOL PLACE LIMIT GRACE BLOCKS COMMAND...
#   SPOOL   the attempt's folder          PLACE   where this process lives, for the identity
#   LIMIT   seconds it may run, 0 = any   GRACE   seconds between TERM and KILL
#   BLOCKS  512-byte blocks a file of the agent may have
#
# It leaves in SPOOL: identity (pid, start time, place), stdout, stderr, and at the end exit (the
# status) or, when the time ran out, ran_out.
set -u
umask 077
spool=$1 place=$2 limit=$3 grace=$4 blocks=$5
shift 5

# Caught, not ignored: what is started below gets the default back.
trap : TERM INT HUP QUIT

start_ticks() { shift 19; ticks=$1; }
IFS= read -r stat <"/proc/$$/stat" || exit 125
# The name may hold anything; what follows its last bracket is numbers.
start_ticks ${stat##*) }
printf '%s %s %s\n' "$$" "$ticks" "$place" >"$spool/identity" || exit 125

# The agent starts only when the identity is committed. If the service dies first, this is EOF.
IFS= read -r word || exit 125
[ "$word" = go ] || exit 125

timer=
if [ "$limit" -gt 0 ]; then
    (
        sleeper=
        trap '[ -z "$sleeper" ] || kill "$sleeper"; exit 0' TERM
        sleep "$limit" &
        sleeper=$!
        wait "$sleeper"
        trap '' TERM
        rm -rf -- "$spool/ran_out"
        # Not with ":": a shell ends when one of its special commands cannot write, and the agent
        # may have taken the folder away.
        printf '' >"$spool/ran_out"
        kill -TERM "-$$"
        sleep "$grace"
        kill -KILL "-$$"
    ) </dev/null >/dev/null 2>&1 &
    timer=$!
fi

(
    ulimit -f "$blocks"
    exec "$@"
) </dev/null >>"$spool/stdout" 2>>"$spool/stderr"
status=$?

# Whatever the agent has put there, a pipe for instance, must not hold this up.
rm -rf -- "$spool/exit"
printf '%s\n' "$status" >"$spool/exit"
[ -z "$timer" ] || kill -TERM "$timer" 2>/dev/null
exit 0
