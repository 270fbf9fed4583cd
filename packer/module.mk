packer_src := $(notdir $(wildcard packer/*.c))
