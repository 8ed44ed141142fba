# Stands between the service and one agent, in a session of its own, and outlives the service.
#
# Called as: sh -c THIS reveille-agent SPOOL PLACE LIMIT ENDS GRACE BLOCKS COMMAND...
#   SPOOL   the attempt's folder          PLACE   where this process lives, for the identity
#   LIMIT   seconds it may run, 0 = any   ENDS    when that is over, in seconds since 1970
#   GRACE   seconds between TERM and KILL
#   BLOCKS  512-byte blocks a file of the agent may have
# and with a pipe as stdin, which brings the word to start, with the start time of this process as
# the kernel counts it, and stays open while the service lives.
#
# It leaves in SPOOL: identity (pid, start time, place), stdout, stderr, and at the end exit (the
# status), ran_out when the time ran out here, or unstarted when the word never came.
set -u
umask 077
spool=$1 place=$2 limit=$3 ends=$4 grace=$5 blocks=$6
shift 6

# Caught, not ignored: what is started below gets the default back.
trap : TERM INT HUP QUIT

# The agent starts only when the identity is committed. If the service dies first, this is EOF.
exec 3<&0 </dev/null
word=
read -r word ticks <&3
if [ "$word" != go ]; then
    printf '' >"$spool/unstarted"
    exit 125
fi
printf '%s %s %s\n' "$$" "$ticks" "$place" >"$spool/identity" || exit 125

# While the service lives it keeps the time by its rows. When it ends, the pipe does, and the time
# is kept here.
timer=
if [ "$limit" -gt 0 ]; then
    (
        read -r word <&3
        now=$(date +%s) || now=$((ends - limit))
        if [ "$now" -lt "$ends" ]; then
            sleep "$((ends - now))"
        fi
        trap '' TERM
        rm -rf -- "$spool/ran_out"
        # Not with ":": a shell ends when one of its special commands cannot write, and the agent
        # may have taken the folder away.
        printf '' >"$spool/ran_out"
        kill -TERM "-$$"
        sleep "$grace"
        kill -KILL "-$$"
    ) >/dev/null 2>&1 &
    timer=$!
fi

# In a shell of its own: what this one says of a command that was killed is none of its output.
(
    ulimit -f "$blocks"
    exec "$@"
) </dev/null >>"$spool/stdout" 2>>"$spool/stderr" 3<&-
status=$?

# Whatever the agent has put there, a pipe for instance, must not hold this up.
if [ -e "$spool/exit" ] || [ -L "$spool/exit" ]; then
    rm -rf -- "$spool/exit"
fi
printf '%s\n' "$status" >"$spool/exit"
if [ -n "$timer" ]; then
    # Not TERM: it may be so new that it would miss a signal it could catch. The sleep that it
    # leaves behind ends with the rest of this group.
    kill -KILL "$timer"
    wait "$timer"
    kill -TERM "-$$"
    if [ -e "$spool/ran_out" ]; then
        sleep "$grace"
        kill -KILL "-$$"
    fi
fi
exit 0
