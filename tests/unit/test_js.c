#include "common/base/js.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    struct js *o = js_object(), *a = js_array();
    js_append_int(a, -3);
    js_append_num(a, 0.1);
    js_append_str(a, "x\ny");
    js_set(o, "z", a);
    js_set_str(o, "a", "caf\xc3\xa9 \xff");
    js_set_u64(o, "big", UINT64_MAX);
    js_set_num(o, "nan", NAN);
    js_set_bool(o, "yes", 1);
    char *t = js_text(o, 0, 6);
    CHECK(t && !strcmp(t, "{\"z\":[-3,0.1,\"x\\ny\"],\"a\":\"caf\xc3\xa9 \xef\xbf\xbd\",\"big\":\"18446744073709551615\","
                          "\"nan\":null,\"yes\":true}"));
    struct err e = { 0 };
    struct js *back = js_parse(t, strlen(t), "t", &e);
    int64_t i = 0;
    double d = 0;
    CHECK(back && js_len(js_get(back, "z")) == 3);
    CHECK(back && js_int(js_at(js_get(back, "z"), 0), &i) && i == -3);
    CHECK(back && js_num(js_at(js_get(back, "z"), 1), &d) && d == 0.1);
    CHECK(back && !js_int(js_get(back, "a"), &i) && !js_get(back, "none") && !js_str(js_get(back, "z")));
    CHECK(!js_parse("{\"a\":1,\"a\":2}", 13, "dup", &e) && e.code == ERR_FORMAT && strstr(e.msg, "'dup'"));
    CHECK(!js_parse("[1,2", 4, "cut", &e) && e.code == ERR_FORMAT);
    free(t);
    js_free(back);
    js_free(o);
    return test_done();
}
