# Installs the `levity` command on Windows:
#   irm https://github.com/levity-rs/levity/releases/latest/download/install.ps1 | iex
#
# The script downloads a binary of a release, compares its SHA-256 with the release's list, and
# moves it into a folder of the user. It needs PowerShell 5.1 or newer and no rights of an
# administrator.
#
#   LEVITY_INSTALL   folder for the binary; %LOCALAPPDATA%\Programs\levity by default
#   LEVITY_VERSION   version such as 0.1.0; the latest release by default
#   LEVITY_DOWNLOAD  address of the release's files, such as that of a mirror

& {
    $ErrorActionPreference = 'Stop'
    # The progress bar of Windows PowerShell slows downloads down.
    $ProgressPreference = 'SilentlyContinue'
    [Net.ServicePointManager]::SecurityProtocol =
        [Net.ServicePointManager]::SecurityProtocol -bor [Net.SecurityProtocolType]::Tls12

    $fromSource = 'build it with `cargo install levity-cli --locked --features full`'
    $machine = $env:PROCESSOR_ARCHITEW6432
    if (-not $machine) { $machine = $env:PROCESSOR_ARCHITECTURE }
    # Windows on ARM runs this binary, too.
    if ($machine -notin @('AMD64', 'ARM64')) {
        throw "levity: there is no binary for the processor $machine; $fromSource"
    }
    $target = 'x86_64-pc-windows-msvc'
    $asset = "levity-$target.zip"

    $folder = $env:LEVITY_INSTALL
    if (-not $folder) { $folder = Join-Path $env:LOCALAPPDATA 'Programs\levity' }
    $releases = 'https://github.com/levity-rs/levity/releases'
    $from = $env:LEVITY_DOWNLOAD
    if (-not $from) {
        if ($env:LEVITY_VERSION) {
            $from = "$releases/download/v$($env:LEVITY_VERSION -replace '^v', '')"
        } else {
            $from = "$releases/latest/download"
        }
    }

    $work = Join-Path ([IO.Path]::GetTempPath()) "levity-$([Guid]::NewGuid())"
    New-Item -ItemType Directory -Path $work | Out-Null
    try {
        Write-Host "levity: downloading $asset"
        $sums = Join-Path $work 'SHA256SUMS'
        $archive = Join-Path $work $asset
        Invoke-WebRequest -UseBasicParsing -Uri "$from/SHA256SUMS" -OutFile $sums
        $expected = Get-Content $sums | ForEach-Object {
            $digest, $name = $_ -split '\s+', 2
            if ($name -and $name.TrimStart('*') -eq $asset) { $digest }
        } | Select-Object -First 1
        if (-not $expected) {
            throw "levity: the release has no binary for $target; $fromSource"
        }
        Invoke-WebRequest -UseBasicParsing -Uri "$from/$asset" -OutFile $archive
        $actual = (Get-FileHash -Algorithm SHA256 -Path $archive).Hash
        # The comparison of PowerShell ignores the case of hexadecimal digits.
        if ($actual -ne $expected) {
            throw ("levity: $asset has the wrong SHA-256 ($actual, not $expected); nothing was " +
                'installed, try again')
        }

        Expand-Archive -Path $archive -DestinationPath $work
        $fresh = Join-Path $work 'levity.exe'
        $found = & $fresh --version
        if ($LASTEXITCODE -ne 0) { throw "levity: the binary for $target does not run here" }

        New-Item -ItemType Directory -Force -Path $folder | Out-Null
        $place = Join-Path $folder 'levity.exe'
        # A running program cannot be overwritten, but it can be renamed.
        $old = "$place.old"
        if (Test-Path $old) { Remove-Item -Force -ErrorAction SilentlyContinue $old }
        if (Test-Path $place) { Move-Item -Force $place $old }
        try {
            Move-Item -Force $fresh $place
        } catch {
            if (Test-Path $old) { Move-Item -Force $old $place }
            throw
        }
        if (Test-Path $old) { Remove-Item -Force -ErrorAction SilentlyContinue $old }
        Write-Host "levity: installed $found in $folder"

        $path = [Environment]::GetEnvironmentVariable('Path', 'User')
        if (($path -split ';') -notcontains $folder) {
            $joined = (@($path, $folder) | Where-Object { $_ }) -join ';'
            [Environment]::SetEnvironmentVariable('Path', $joined, 'User')
            Write-Host "levity: added $folder to PATH; open a new terminal to use it"
        }
    } finally {
        Remove-Item -Recurse -Force $work
    }
}
