/* A page of a browser on this machine can send requests to any address that its user's browser reaches, and a name of its author can lead
 * here (DNS rebinding). So Host must be an address or a name that was allowed, and Origin, which browsers send with what pages ask, too. A
 * key is compared in a time that does not depend on where it differs. */
#include "server/door.h"

#include "common/base/file.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MOST (64u << 10) /* bytes of a file of keys */
#define KEY  512         /* of a key */

static int take_keys(struct door *d, const char *from, struct err *e)
{
    char *rest = d->text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        line += strspn(line, " \t\r");
        size_t n = strlen(line);
        while (n && strchr(" \t\r", line[n - 1]))
            line[--n] = 0;
        if (n == 0 || line[0] == '#')
            continue;
        if (n > KEY || d->n_keys == DOOR_KEYS)
            return err_set(e, ERR_FORMAT, "%s: a key of more than %d bytes, or more than %d keys", from, KEY, DOOR_KEYS);
        d->keys[d->n_keys++] = line;
    }
    return d->n_keys ? 0 : err_set(e, ERR_FORMAT, "%s has no key", from);
}

int door_open(struct door *d, const char *file, struct err *e)
{
    const char *own = getenv("THERMO_API_KEY");
    size_t n;
    int r = 0;
    if (!file && (!own || !*own))
        return 0;
    if (file)
        r = file_slurp(file, MOST, &d->text, &n, e);
    else if (!(d->text = strdup(own)))
        r = err_set(e, ERR_NOMEM, "out of memory for a key");
    return r < 0 ? r : take_keys(d, file ? file : "THERMO_API_KEY", e);
}

void door_close(struct door *d)
{
    free(d->text);
    free(d->hosts.items);
    free(d->origins.items);
    *d = (struct door){ 0 };
}

/* Equal, in a time that the length of what was given decides. */
static int same(const char *key, const char *given)
{
    size_t n = strlen(key), m = strlen(given);
    unsigned differs = n != m;
    for (size_t i = 0; i < m; i++)
        differs |= (unsigned char)given[i] ^ (unsigned char)key[i < n ? i : n];
    return !differs;
}

static int has_key(const struct door *d, struct call *c)
{
    const char *bearer = call_header(c, "Authorization"), *plain = call_header(c, "x-api-key");
    int found = 0;
    if (bearer && !strncasecmp(bearer, "Bearer ", 7))
        bearer += 7 + strspn(bearer + 7, " ");
    else
        bearer = NULL;
    for (int i = 0; i < d->n_keys; i++) {
        found |= bearer ? same(d->keys[i], bearer) : 0;
        found |= plain ? same(d->keys[i], plain) : 0;
    }
    return found;
}

/* Without brackets and port. */
static void name_of(const char *host, char *name, size_t cap)
{
    const char *from = host, *end = host + strlen(host);
    if (*from == '[') {
        from++;
        end = strchr(from, ']') ? strchr(from, ']') : end;
    } else if (strchr(from, ':') && strchr(from, ':') == strrchr(from, ':')) {
        end = strchr(from, ':');
    }
    snprintf(name, cap, "%.*s", (int)(end - from < 255 ? end - from : 255), from);
}

static int is_address(const char *name)
{
    unsigned char a[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, name, a) == 1 || inet_pton(AF_INET6, name, a) == 1;
}

int door_loopback(const char *address)
{
    struct in_addr four;
    struct in6_addr six;
    if (inet_pton(AF_INET, address, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, address, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

static int listed(const struct opt_list *l, const char *name)
{
    int found = 0;
    for (int i = 0; i < l->n && !found; i++)
        found = !strcmp(l->items[i], "*") || !strcasecmp(l->items[i], name);
    return found;
}

static int host_allowed(const struct door *d, const char *host)
{
    char name[256];
    name_of(host, name, sizeof name);
    return is_address(name) || !strcasecmp(name, "localhost") || listed(&d->hosts, name);
}

/* A page of this server itself, or of one that was allowed. */
static int origin_allowed(const struct door *d, const char *origin, const char *host)
{
    const char *at = strstr(origin, "://");
    return (at && host && !strcasecmp(at + 3, host)) || listed(&d->origins, origin);
}

static void let_read(struct call *c, const char *origin)
{
    call_set(c, "Access-Control-Allow-Origin", origin);
    call_set(c, "Vary", "Origin");
    if (!strcmp(call_method(c), "OPTIONS")) {
        call_set(c, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
        call_set(c, "Access-Control-Allow-Headers", "authorization, content-type, x-api-key, anthropic-version, anthropic-beta, "
                 "anthropic-dangerous-direct-browser-access, x-stainless-arch, x-stainless-lang, x-stainless-os, "
                 "x-stainless-package-version, x-stainless-runtime, x-stainless-runtime-version, x-stainless-retry-count, "
                 "x-stainless-timeout");
        call_set(c, "Access-Control-Max-Age", "600");
    }
}

/* The page is the same for all, and asks for the key itself. */
static int needs_no_key(const char *path)
{
    return !strcmp(path, "/") || !strcmp(path, "/health") || !strcmp(path, "/v1/health");
}

int door_look(const struct door *d, struct call *c, const char **message)
{
    const char *host = call_header(c, "Host"), *origin = call_header(c, "Origin");
    if (host && !host_allowed(d, host)) {
        *message = "the request is for another host; --allow-host NAME takes requests for NAME";
        return 403;
    }
    if (origin && !origin_allowed(d, origin, host)) {
        *message = "the request comes from a page of another origin; --allow-origin ORIGIN takes requests of its pages";
        return 403;
    }
    if (origin)
        let_read(c, origin);
    if (d->n_keys && !needs_no_key(call_path(c)) && strcmp(call_method(c), "OPTIONS") && !has_key(d, c)) {
        call_set(c, "WWW-Authenticate", "Bearer");
        *message = "a key is needed: 'Authorization: Bearer KEY', or 'x-api-key: KEY'";
        return 401;
    }
    return 0;
}
