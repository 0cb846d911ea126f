import { lazy, Suspense } from 'react';
import { Redirect, Route, Switch } from 'wouter';
import { useSession } from './api/session';
import { Layout } from './components/Layout';
import { Loading } from './components/Loading';
import { Problem } from './components/Problem';
import { Dashboard } from './pages/Dashboard';
import { LoginPage } from './pages/LoginPage';
import { VolumesPage } from './pages/volumes/VolumesPage';

const VolumePage = lazy(() => import('./pages/volume/VolumePage'));
const NodesPage = lazy(() => import('./pages/nodes/NodesPage'));
const SettingsPage = lazy(() => import('./pages/settings/SettingsPage'));

export function App() {
  const session = useSession();
  if (session.isPending) return <Loading what="who is logged in" />;
  if (session.isError) {
    return (
      <main className="alone">
        <Problem error={session.error} retry={() => void session.refetch()} />
      </main>
    );
  }
  if (session.data.user === '' && !session.data.trustedNetwork) return <LoginPage />;
  return (
    <Layout session={session.data}>
      <Suspense fallback={<Loading what="the page" />}>
        <Switch>
          <Route path="/" component={Dashboard} />
          <Route path="/volumes" component={VolumesPage} />
          <Route path="/volumes/:name">{({ name }) => <VolumePage key={name} name={decodeURIComponent(name)} />}</Route>
          <Route path="/nodes" component={NodesPage} />
          <Route path="/settings" component={SettingsPage} />
          <Route>
            <Redirect to="/" replace />
          </Route>
        </Switch>
      </Suspense>
    </Layout>
  );
}
