# hwdb_fields.awk schemas/hwdb.sql: the columns that are marked there ([key ...], [field], [note]) as rows of struct hwdb_field. A mark, a
# type or a CHECK that is not understood is an error.
BEGIN {
    n = split("device hw core_class hw_class compute hw_compute memory hw_memory storage hw_storage accelerator hw_accel " \
              "accelerator_point hw_accel_point joint hw_joint conditions hw_conditions", w, " ")
    for (i = 1; i < n; i += 2)
        of[w[i]] = w[i + 1]
    as["core_class_id"] = "core_class"; as["accelerator_id"] = "accel"; as["table_name"] = "table"
    as["resident"] = "dram"; as["storage_description"] = "storage"
}
function fail(why) { print FILENAME ":" FNR ": " why > "/dev/stderr"; bad = 1; exit 1 }

/^CREATE TABLE / { table = $3; was = ""; if (table in of) print "static const struct hwdb_field " table "_fields[] = {" }
/^\)/ { if (table in of) print "};"; table = "" }
table in of && match($0, /-- \[[^]]*\]/) {
    mark = substr($0, RSTART + 4, RLENGTH - 5)
    column = $1; csv = column; member = column in as ? as[column] : column
    flags = "0"; standard = "NULL"; names = "NULL"; min = 0; max = "INT64_MAX"
    definition = substr($0, 1, RSTART - 1)
    if (!match($2, /^(TEXT|INTEGER|REAL),?$/))
        fail("a type that is not known")
    type = "HWDB_" $2
    sub(/,$/, "", type)
    if (definition ~ /NOT NULL/) flags = flags " | HWDB_NEED"
    if (split(mark, word, " ") > 1 && word[1] == "key") {
        flags = flags " | HWDB_KEY"
        csv = word[2]
        if ((i = index(csv, "=")) > 0) { standard = "\"" substr(csv, i + 1) "\""; csv = substr(csv, 1, i - 1) }
        if (word[3] == "note") flags = flags " | HWDB_NOTE"
    } else if (mark == "note") flags = flags " | HWDB_NOTE"
    else if (mark != "field") fail("'[" mark "]' is no mark")
    if (column ~ /_p(10|90)$/ || (column ~ /_p50$/ && was == substr(column, 1, length(column) - 2) "10")) {
        member = substr(column, 1, length(column) - 4) "." substr(column, length(column) - 2)
        if (column ~ /_p50$/) csv = substr(column, 1, length(column) - 4)
    }
    if (definition ~ /REFERENCES core_class/) type = "HWDB_CLASS"
    else if (definition ~ /REFERENCES accelerator/) type = "HWDB_ACCEL"
    else if (column == "marks") type = "HWDB_MARKS"
    else if (match(definition, /CHECK \(.*\)/)) {
        check = substr(definition, RSTART + 7, RLENGTH - 8)
        n = split(check, word, " ")
        if (check ~ / IN \('/) {
            type = "HWDB_CHOICE"; names = check
            sub(/^[^(]*\(/, "", names); gsub(/[',)]/, "", names)
            names = "\"" names "\""
        } else if (check ~ / IN \(0, 1\)$/) max = 1
        else if (type == "HWDB_TEXT" && word[1] == "length(" column ")" && word[2] == "BETWEEN" && word[3] == 1) min = 1
        else if (word[1] == column && word[2] == "BETWEEN" && n == 5) { min = word[3]; max = word[5] }
        else if (word[1] == column && word[2] == ">" && word[3] == "0" && (n == 3 || (n == 7 && word[6] == "<="))) {
            min = 1
            if (n == 7) max = word[7]
        } else fail("a CHECK that is not understood")
    }
    s = "struct " of[table]
    printf "    { \"%s\", \"%s\", %s, %s, %s, %s, offsetof(%s, %s), sizeof(((%s *)0)->%s), %s, %s },\n", column, csv, standard, names, type,
           flags, s, member, s, member, min, max
    was = column
}
END { exit bad }
