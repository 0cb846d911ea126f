import { useState, type ReactNode } from 'react';
import { Link, useLocation } from 'wouter';
import { useStreams } from '../api/live';
import { useLogout } from '../api/session';
import type { Session } from '../api/types';
import { storedTheme, storeTheme, type Theme } from '../lib/theme';
import { Button } from './Button';
import { ConnectionBar } from './ConnectionBar';
import { SelectField } from './SelectField';

const places = [
  ['/', 'Dashboard'],
  ['/volumes', 'Volumes'],
  ['/nodes', 'Nodes'],
  ['/settings', 'Settings'],
] as const;

// Layout has the parts that all pages share, and keeps their data up to date.
export function Layout({ session, children }: { session: Session; children: ReactNode }) {
  useStreams();
  const [location] = useLocation();
  const [theme, setTheme] = useState<Theme>(storedTheme);
  const logout = useLogout();
  const isHere = (path: string) => (path === '/' ? location === '/' : location.startsWith(path));
  return (
    <>
      <a className="skip" href="#main">
        Skip to the content
      </a>
      <header className="top">
        <span className="brand">
          <span aria-hidden="true" className="mark" />
          Longhorn
        </span>
        <nav aria-label="Pages">
          {places.map(([path, name]) => (
            <Link key={path} href={path} aria-current={isHere(path) ? 'page' : undefined}>
              {name}
            </Link>
          ))}
        </nav>
        <div className="who">
          <SelectField
            label="Theme"
            hideLabel
            value={theme}
            options={[
              ['system', 'System theme'],
              ['light', 'Light theme'],
              ['dark', 'Dark theme'],
            ]}
            onChange={(value) => {
              setTheme(value);
              storeTheme(value);
            }}
          />
          {session.user !== '' && (
            <>
              <span className="user" title={session.user}>
                {session.user.replace(/^system:serviceaccount:/, '')}
              </span>
              <Button look="quiet" onPress={() => logout.mutate()} isDisabled={logout.isPending}>
                Log out
              </Button>
            </>
          )}
          {session.user === '' && session.trustedNetwork && (
            <Link href="/settings#rest-trusted-network" className="warning-link">
              No login required
            </Link>
          )}
        </div>
      </header>
      <ConnectionBar />
      <main id="main" tabIndex={-1}>
        {children}
      </main>
    </>
  );
}
