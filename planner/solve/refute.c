#include "planner/solve/refute.h"

#include <string.h>
#include <z3.h>

int refute_text(const char *text, int *checks, int *unsat, struct err *e)
{
    Z3_config config = Z3_mk_config();
    Z3_context z = Z3_mk_context(config);
    Z3_del_config(config);
    if (!z)
        return err_set(e, ERR_NOMEM, "Z3 did not start");
    Z3_set_error_handler(z, NULL);
    const char *said = Z3_eval_smtlib2_string(z, text), *bad = said ? strstr(said, "(error") : NULL;
    int r = 0;
    *checks = *unsat = 0;
    if (Z3_get_error_code(z) == Z3_MEMOUT_FAIL)
        r = err_set(e, ERR_NOMEM, "out of memory in Z3");
    else if (!said || bad)
        r = err_set(e, ERR_FORMAT, "Z3 does not read it: %.200s", bad ? bad : "no answer");
    for (const char *at = said; r == 0 && *at;) {
        size_t n = strcspn(at, "\n");
        *checks += n > 0;
        *unsat += n == 5 && !strncmp(at, "unsat", 5);
        at += n + (at[n] == '\n');
    }
    Z3_del_context(z);
    return r;
}
