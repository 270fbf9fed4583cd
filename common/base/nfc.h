#ifndef COMMON_BASE_NFC_H
#define COMMON_BASE_NFC_H

/* Unicode's Normalization Form C (UAX 15): characters composed, marks in canonical order. */
#include "common/base/err.h"

#include <stddef.h>

/* NFC of text[0..len), malloc'd, at most three times as long; *out is NULL where the text has no character from U+0300 on: then it is
 * NFC as it is. Bytes that are no UTF-8 stay, and nothing is composed across them. A text is the NFC of its parts, one after the other,
 * where it is cut before an ASCII character. Time O(n log n). */
int nfc_text(const char *text, size_t len, char **out, size_t *out_len, struct err *e);

#endif
