/* Magic numbers of the files that come in a model's place: other forms of weights, archives, failed downloads, the project's own. */
#include "common/base/filekind.h"

#include "common/base/bytes.h"

#include <string.h>
#include <strings.h>

#define CONVERT "convert it to GGUF with 'thermocline import FOLDER' (llama.cpp's convert_hf_to_gguf.py), or download a GGUF of the model"
#define UNPACK  "unpack it first"
#define AGAIN   "download the file again, from its own link"

static const struct {
    const char *magic, *what, *next;
    uint8_t n, at;
} magics[] = {
    { "GGUF", "a GGUF file", "give the GGUF file to 'thermo-profile' and 'thermo-pack', and what they make to the others", 4, 0 },
    { "GGUC", "a GGUF file that a pack has consumed, so that its weights are no longer in it",
      "give the pack, which the file's last line names", 4, 0 },
    { "THCLPACK", "a packed model", "give it to 'thermo-run' or 'thermo-serve', and the GGUF file that it was made of here", 8, 0 },
    { "\211HDF\r\n\032\n", "an HDF5 file, as traces are", "traces belong to '--traces'", 8, 0 },
    { "SQLite format 3", "an SQLite database, as hardware databases are", "hardware databases belong to '--hardware'", 16, 0 },
    { "tjgg", "a GGML file of before August 2023", "convert the model again, with a converter of today", 4, 0 },
    { "fmgg", "a GGML file of before August 2023", "convert the model again, with a converter of today", 4, 0 },
    { "lmgg", "a GGML file of before August 2023", "convert the model again, with a converter of today", 4, 0 },
    { "algg", "a LoRA adapter of before August 2023", "merge it into its model before the conversion", 4, 0 },
    { "PK\003\4", "a ZIP archive, as PyTorch checkpoints (.bin, .pt) are", CONVERT, 4, 0 },
    { "\200\002\212\n", "a PyTorch checkpoint", CONVERT, 4, 0 },
    { "TFL3", "a TensorFlow Lite model", CONVERT, 4, 4 },
    { "\037\213", "compressed by gzip", UNPACK, 2, 0 },
    { "(\265/\375", "compressed by zstd", UNPACK, 4, 0 },
    { "\3757zXZ", "compressed by xz", UNPACK, 6, 0 },
    { "BZh", "compressed by bzip2", UNPACK, 3, 0 },
    { "7z\274\257\047\034", "a 7z archive", UNPACK, 6, 0 },
    { "Rar!", "a RAR archive", UNPACK, 4, 0 },
    { "version https://git-lfs", "a Git LFS pointer, a few lines in place of the file itself",
      "'git lfs pull' in its folder brings the file", 23, 0 },
    { "Entry not found", "a server's message \"Entry not found\"", AGAIN, 15, 0 },
    { "Invalid username", "a server's message that asks for a login",
      "log in (the model may ask for consent) and download the file again", 16, 0 },
    { "Access to model", "a server's message that the model asks for consent",
      "give it on the model's page and download the file again", 15, 0 },
};

static int blank(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* A length of 8 bytes that the file has room for, and JSON. */
static int is_safetensors(const uint8_t *h, size_t n, uint64_t size)
{
    return n > 9 && bytes_le64(h) >= 2 && bytes_le64(h) <= size - 8 && h[8] == '{' && (h[9] == '"' || h[9] == '}' || blank(h[9]));
}

/* Entries, the length of the first name, and its beginning. */
static int is_imatrix(const uint8_t *h, size_t n)
{
    return n >= 12 && bytes_le32(h) > 0 && bytes_le32(h) < 1u << 20 && bytes_le32(h + 4) >= 4 && bytes_le32(h + 4) < 256 &&
           (!memcmp(h + 8, "blk.", 4) || !memcmp(h + 8, "outp", 4));
}

struct filekind filekind(const void *head, size_t n, uint64_t size)
{
    const uint8_t *h = head;
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
        if (n >= (size_t)magics[i].at + magics[i].n && !memcmp(h + magics[i].at, magics[i].magic, magics[i].n))
            return (struct filekind){ magics[i].what, magics[i].next };
    if (is_safetensors(h, n, size))
        return (struct filekind){ "weights in the safetensors form", CONVERT };
    if (is_imatrix(h, n))
        return (struct filekind){ "an importance matrix", "it serves whoever quantises a model; give the model itself" };
    size_t k = 0;
    while (k < n && blank(h[k]))
        k++;
    if ((n - k >= 9 && !strncasecmp((const char *)h + k, "<!doctype", 9)) || (n - k >= 5 && !strncasecmp((const char *)h + k, "<html", 5)))
        return (struct filekind){ "a web page", "the link was to a page about the file; " AGAIN };
    if (n - k >= 2 && h[k] == '{' && (h[k + 1] == '"' || blank(h[k + 1])))
        return (struct filekind){ "JSON, as a plan, a configuration, an index of shards or a server's error is", "give the model itself" };
    for (k = 0; k < n && h[k] == 0; k++)
        ;
    if (n > 0 && k == n)
        return (struct filekind){ "zeros, as the place of a download that has not come is", "let the download end, or begin it again" };
    return (struct filekind){ NULL, NULL };
}
