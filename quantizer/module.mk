quantizer_src := $(notdir $(wildcard quantizer/*.c))
