#!/bin/sh
# man.sh PROGRAM: a manual page on stdout, written from what the program's --help says, so that the two agree.
program=$1
name=$(basename "$program")
version=$("$program" --version | sed -n '1s/^[^ ]* //p')

# Text as it is, with roff's special characters guarded.
literal()
{
    sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^\\([.']\\)/\\\\\\&\\1/"
}

about=$("$program" --help | sed -n '3,/^$/p' | tr '\n' ' ' | sed 's/ *$//')
printf '.TH %s 1 "" "Thermocline %s" "Thermocline manual"\n' "$(echo "$name" | tr '[:lower:]' '[:upper:]')" "$version"
printf '.SH NAME\n%s \\- %s\n' "$(echo "$name" | literal)" "$(echo "${about%%. *}" | sed 's/\.$//' | literal)"
printf '.SH SYNOPSIS\n.B %s\n.I COMMAND\n[options]\n' "$(echo "$name" | literal)"
printf '.SH DESCRIPTION\n%s\n' "$(echo "$about" | literal)"
for command in $("$program" --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    printf '.SH COMMAND %s\n.nf\n' "$(echo "$command" | tr '[:lower:]' '[:upper:]')"
    "$program" "$command" --help | literal
    printf '.fi\n'
done
cat << 'END'
.SH EXIT STATUS
.nf
0    done
1    failed
2    wrong usage
3    an input is unreadable, corrupt or unsupported
4    infeasible: no plan, or the budget is below the floor
5    mismatch: files that do not belong together
6    I/O failed while running
130  interrupted; what was done is kept
.fi
.SH SEE ALSO
.BR thermo\-profile (1),
.BR thermo\-plan (1),
.BR thermo\-pack (1),
.BR thermo\-run (1)
END
