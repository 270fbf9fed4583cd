/* Force-included by analyze.sh: an analyser sees one file at a time and must be told that these functions return
 * the code they are given, or it follows paths on which a failure went unnoticed. */
#include "common/base/err.h"

static inline int analyze_code(int ignored, int code)
{
    (void)ignored;
    return code < 0 ? code : -1;
}
#define err_set(e, code, ...) analyze_code((err_set)(e, code, __VA_ARGS__), code)
#define err_sys(e, code, ...) analyze_code((err_sys)(e, code, __VA_ARGS__), code)
#define err_wrap(e, ...) analyze_code((err_wrap)(e, __VA_ARGS__), -1)
