#include "runtime/inputs.h"

#include "common/plan/budget.h"

#include "common/base/machine.h"

uint64_t inputs_limit(uint64_t memory)
{
    uint64_t there = memory ? memory : machine_available_bytes();
    return there ? there : UINT64_MAX / 4;
}

size_t inputs_room(uint64_t limit, uint64_t taken)
{
    uint64_t held = taken > UINT64_MAX / 4 ? UINT64_MAX / 4 : BUDGET_PROCESS_BYTES + taken;
    uint64_t left = limit > held ? limit - held : 0;
    left = left > INPUTS_LEAST ? left : INPUTS_LEAST;
    return left < SIZE_MAX / 4 ? (size_t)left : SIZE_MAX / 4;
}

size_t inputs_text_bytes(size_t room)
{
    return room / INPUTS_TEXT_COST < INPUTS_TEXT_MAX ? room / INPUTS_TEXT_COST : INPUTS_TEXT_MAX;
}

#define START   "what the limit leaves at the start"
#define NOTHING "nothing: given back before the engine's memory is mapped"

const struct inputs_row inputs_table[] = {
    { "packed model", "--model, --draft, --mtp",
      "table of contents and metadata: " START "; 2^20 sections, 512 MiB of metadata",
      "sections one by one; weights by the loader, in pieces",
      "meta; more than 32 KiB of keys: beside" },
    { "plan", "--plan, --draft-plan", "64 MiB of text; what it says: seven eighths of " START,
      "in pieces of 1 KiB; JSON's memory is counted by the allocation", "meta" },
    { "prompt", "--prompt, --prompt-file", START ", 1/64 of it in text; then the context", "whole, then its tokens", NOTHING },
    { "text to score or decode", "--file, --text", START "; of the tokens as many as are scored or decoded",
      "in pieces of 64 KiB, each as tokens; longer ones where a text has no place to cut", "beside, 4 bytes a token" },
    { "token ids", "--ids", "as many as are scored", "in pieces of 16 KiB", "beside, 4 bytes a token" },
    { "token ids of the command line", "--tokens", "the kernel's for an argument, 128 KiB", "as it is", NOTHING },
    { "chat template", "--chat-template", "1 MiB of text, 512 KiB when parsed", "whole, then its tree", "beside" },
    { "memory limit", "--memory-file, --follow-pressure", "256 bytes", "again and again, 256 bytes each time", "beside" },
    { "system message", "--system", "as a message: 4096 bytes and 8 for each position of the context", "as it is", "beside" },
    { "stop texts", "--stop", "4096 bytes each; of fields of a request 8 of 64 bytes", "as they are",
      "process; what they hold back: beside" },
    { "line of chat", "", "8192 bytes and 8 for each position of the context; of a message of several lines together; what JSON makes "
      "of it: eight times that and 64 KiB", "one at a time; what is longer is read past and refused; at a terminal what is typed has at "
      "most 32,768 characters, of which the editor keeps 20 bytes each", "beside" },
    { "file of /load", "--session", "64 MiB of text; what it says: eight times a line and 64 KiB", "in pieces of 1 KiB", "beside" },
    { "line of serve", "", "8192 bytes and 8 for each position of the context; what JSON makes of it: six times that and 128 bytes for "
      "each of 1024 values and of the context's tokens",
      "one at a time; what is longer is read past, refused, and the next one answered", "beside" },
    { "file of prompts", "--prompts", "a record as a line of serve; records: any number", "one record at a time", "beside" },
    { "results to go on from", "--output", "a record as it was written; records: any number", "in pieces", "beside" },
    { "programs of an accelerator", "--engine-cache", "64 MiB", "whole, by the back end that made them", "the driver's share of beside" },
    { "folder of prefixes", "--prefix-cache", "of a file the size that the model's records have; files: any number",
      "one file at a time, whole; names in a row", "beside, two records" },
    { "accelerator", "--engine",
      "its driver: not loaded where the limit does not leave what every driver takes; measured when it is loaded",
      "by the driver", "the driver's share of beside" },
    { "other arguments", "--column, --cpu, --engine-height, --sequences, --n-prompt, --n-gen, --n-depth, --prompt-gen, --store",
      "the kernel's for arguments", "as they are", "process" },
    { "environment", "", "the kernel's, a quarter of the stack's limit with the arguments; beyond 64 KiB of both: beside", "as it is",
      "process, beside" },
    { 0 },
};
